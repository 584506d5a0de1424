#!/usr/bin/env bash
# PyTorch Lightning 2.6.6 (PyTorch 2.15.0), accumulate_grad_batches where the batches of an epoch are no multiple of it.
# Guess: the last step of an epoch has the mean gradient of the batches that are left, or they are kept for the next
# epoch: every step is as one of a larger batch.
# Seen: the step is made at the end of the epoch, and its gradient divided by the full number. With 5 batches and
# accumulate_grad_batches=4 every second step has a quarter of the gradient; with 3 batches all steps have three
# quarters. SGD goes that much less far, Adam's averages take in gradients that are too small, and clipping sees too
# small a norm: on_before_optimizer_step has them, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pytorch-lightning==2.6.6 torch==2.15.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON' 2>"$folder/log" || { cat "$folder/log" && exit 1; }
import pytorch_lightning as lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.gradients = []

    def training_step(self, batch, index):
        return (self.weight * batch).mean()  # a gradient of 1 for each batch of ones

    def on_before_optimizer_step(self, optimizer):
        self.gradients.append(self.weight.grad.item())

    def configure_optimizers(self):
        return torch.optim.SGD([self.weight], lr=1.0)


print("pytorch_lightning", lightning.__version__)
for batches, expected in ((8, [1, 1, 1, 1]), (5, [1, 0.25, 1, 0.25]), (3, [0.75, 0.75])):
    model = Model()
    trainer = lightning.Trainer(max_epochs=2, accumulate_grad_batches=4, accelerator="cpu", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(2 * batches), batch_size=2))
    print(f"{batches} batches, accumulate_grad_batches=4, two epochs: gradients of the steps:", model.gradients)
    assert model.gradients == expected and model.weight.item() == -sum(expected)
PYTHON
