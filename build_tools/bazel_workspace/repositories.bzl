"""Repository rules for files on this machine."""

def _linked(context):
    folder = context.os.environ[context.attr.folder]
    for path in context.attr.paths:
        context.symlink(folder + "/" + path, context.attr.into + path)
    if context.attr.build_file:
        context.symlink(context.attr.build_file, context.attr.into + "BUILD")

linked = repository_rule(
    implementation = _linked,
    doc = "A repository of links to files and folders.",
    attrs = {
        "build_file": attr.label(doc = "The BUILD file, unless it is among `paths`."),
        "folder": attr.string(
            doc = "Environment variable with the path of the folder that contains `paths`.",
            mandatory = True,
        ),
        "into": attr.string(doc = "Folder of the links in the repository."),
        "paths": attr.string_list(
            doc = "Files and folders to link.",
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
    doc = "A repository of files whose content is given in WORKSPACE.",
    attrs = {"files": attr.string_dict(mandatory = True)},
)
