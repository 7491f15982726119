// Which TensorFlow this library was compiled against. The Python loader reads this text from
// the file before it loads the library, because a library for another TensorFlow minor may
// crash instead of failing to load.

#ifndef LARGEOUT_TENSORFLOW_VERSION
#error "Compile with -DLARGEOUT_TENSORFLOW_VERSION=2.21.0 (the version of the headers)."
#endif

#define LARGEOUT_TEXT(x) #x
#define LARGEOUT_TEXT_OF(x) LARGEOUT_TEXT(x)

extern "C" __attribute__((used)) const char largeout_built_for[] =
    "largeout built for tensorflow " LARGEOUT_TEXT_OF(LARGEOUT_TENSORFLOW_VERSION);
