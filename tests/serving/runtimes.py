"""`python -m tests.serving.runtimes RUNTIME FOLDER`: results of other runtimes.

A separate process, because converters warn and change settings of TensorFlow. FOLDER has an
export of each model and the file `calls`, a pickled dict of inputs by name.
"""

import os
import pathlib
import pickle
import sys


def openvino(export, inputs):
    """OpenVINO reads SavedModels itself."""
    import openvino

    # By default it uses bfloat16 if the processor supports it: three digits of a score.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.compile_model(openvino.convert_model(export), "CPU", exact)
    return {output.any_name: value for output, value in model(inputs).items()}


def onnxruntime(export, inputs):
    """ONNX Runtime, by tf2onnx."""
    import onnxruntime
    from tf2onnx import convert

    model = f"{export}.onnx"
    sys.argv = ["convert", "--saved-model", export, "--opset", "17", "--output", model]
    convert.main()
    session = onnxruntime.InferenceSession(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def ai_edge_litert(export, inputs):
    """LiteRT, with TensorFlow's converter."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    converter = tf.lite.TFLiteConverter.from_saved_model(
        export, signature_keys=["serving_default"]
    )
    run = Interpreter(model_content=converter.convert()).get_signature_runner("serving_default")
    return run(**inputs)


def main(runtime, folder):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    folder = pathlib.Path(folder)
    calls = pickle.loads((folder / "calls").read_bytes())
    answers = {
        name: globals()[runtime](str(folder / name), inputs) for name, inputs in calls.items()
    }
    (folder / f"answers_{runtime}").write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
