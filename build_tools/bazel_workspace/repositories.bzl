"""Repositories from files that are on this machine."""

def _linked(context):
    folder = context.os.environ[context.attr.folder]
    for path in context.attr.paths:
        context.symlink(folder + "/" + path, context.attr.into + path)
    if context.attr.build_file:
        context.symlink(context.attr.build_file, context.attr.into + "BUILD")

linked = repository_rule(
    implementation = _linked,
    doc = "A repository of links to files and folders where they are.",
    attrs = {
        "build_file": attr.label(doc = "What says the targets, if it is not one of the files."),
        "folder": attr.string(
            doc = "The environment variable that has the path of their folder.",
            mandatory = True,
        ),
        "into": attr.string(doc = "Where in the repository they go."),
        "paths": attr.string_list(
            doc = "The files and folders.",
            mandatory = True,
        ),
    },
    environ = [
        "LARGEOUT_FOLDER",
        "TENSORFLOW_FOLDER",
    ],
    local = True,
)

def _stand_in(context):
    for path, content in context.attr.files.items():
        context.file(path, content)

stand_in = repository_rule(
    implementation = _stand_in,
    doc = "A repository of the files that WORKSPACE says.",
    attrs = {"files": attr.string_dict(mandatory = True)},
)
