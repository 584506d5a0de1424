"""onnx_runtime.py FOLDER: each NAME.onnx in the folder, checked by onnx and computed by onnxruntime: NAME.x.npy gives
NAME.y.npy. Exit status 77: python3 has no onnx or onnxruntime."""
import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError:
    sys.exit(77)

failed = 0
onnxruntime.set_default_logger_severity(3)
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        x, want = numpy.load(path.with_suffix(".x.npy")), numpy.load(path.with_suffix(".y.npy"))
        (got,) = session.run(None, {"images": x})
        assert got.shape == want.shape, f"{got.shape}, not {want.shape}"
        difference = numpy.abs(got - want).max() if want.size else 0
        assert difference <= 1e-4 * max(1, numpy.abs(want).max()), f"differs by {difference}"
    except Exception as error:
        print(f"{path.name}: {error}")
        failed += 1
sys.exit(failed > 0)
