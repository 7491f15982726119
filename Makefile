.PHONY: test-cc
test-cc:
	mkdir -p build/cc
	for f in custom_ops/core/*.cc; do \
	  case $$f in \
	    *_simd.cc) s=$$(basename $$f .cc); \
	      g++ -std=c++17 -O2 -Wall -I. -DLARGEOUT_SIMD=generic -c $$f -o build/cc/$$s-generic.o && \
	      g++ -std=c++17 -O2 -Wall -I. -mavx2 -mfma -mf16c -DLARGEOUT_SIMD=avx2 -c $$f -o build/cc/$$s-avx2.o && \
	      g++ -std=c++17 -O2 -Wall -I. -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -DLARGEOUT_SIMD=avx512 -c $$f -o build/cc/$$s-avx512.o || exit 1;; \
	    *) g++ -std=c++17 -O2 -Wall -Wno-sign-compare -I. -c $$f -o build/cc/$$(basename $$f .cc).o || exit 1;; \
	  esac; done
	g++ build/cc/*.o -lpthread -o build/cc/tests
	build/cc/tests $(TEST)
