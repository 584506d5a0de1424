"""The self-supervised methods of ringtape's corrected recipe, of lightly's parts: what nn/ssl/*.cpp are by default.

Each has a backbone, begin_step(step, steps), to be called before a step, loss(views) of batches of views (N, 3, 32,
32), two but for mae, and after_backward().
"""
import copy

import torch
from lightly.loss import BarlowTwinsLoss, DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss
from lightly.models import ResNetGenerator, utils
from lightly.models.modules.heads import DINOProjectionHead, ProjectionHead, SwaVPrototypes
from lightly.models.modules.memory_bank import MemoryBankModule
from lightly.models.utils import batch_shuffle, batch_unshuffle, deactivate_requires_grad, update_momentum
from lightly.utils.scheduler import cosine_schedule
from torch import nn
from torch.nn import functional as F


def resnet18(width, splits=0):
    """-> (N, 8 width). lightly's own children, with the ReLU behind the first convolution that they leave out."""
    conv, norm, *stages, _ = ResNetGenerator("resnet-18", width=width / 64, num_splits=splits).children()
    return nn.Sequential(conv, norm, nn.ReLU(), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def vit_tiny():
    """-> (N, 192), the class token; patches of 4x4."""
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=4, num_classes=0)


def head(features, hidden, out, norm="hidden"):
    """Two linear layers; batch normalisation behind none of them, the first (hidden) or both (all), and no bias where
    it is."""
    return ProjectionHead([(features, hidden, None if norm == "none" else nn.BatchNorm1d(hidden), nn.ReLU()),
                           (hidden, out, nn.BatchNorm1d(out) if norm == "all" else None, None)])


class Method(nn.Module):
    def __init__(self, recipe, hidden, out, norm="hidden"):
        super().__init__()
        self.recipe = recipe
        vit = recipe["model"] == "vit_tiny"
        self.backbone = vit_tiny() if vit else resnet18(recipe["width"], recipe.get("bn-splits", 0))
        self.features = self.backbone.embed_dim if vit else 8 * recipe["width"]
        self.dimension = recipe.get("projection-dim", out)
        self.hidden, self.norm = recipe.get("projection-hidden", hidden), recipe.get("projection-norm", norm)
        self.projection = self.make_projection()

    def make_projection(self):
        return head(self.features, self.hidden, self.dimension, self.norm)

    def make_prediction(self, hidden):
        return head(self.dimension, self.recipe.get("prediction-hidden", hidden), self.dimension)

    def encode(self, x):
        return self.projection(self.backbone(x))

    def begin_step(self, step, steps):
        pass

    def after_backward(self):
        pass


class Simclr(Method):
    def __init__(self, recipe):
        super().__init__(recipe, 512, 128, "none")
        self.criterion = NTXentLoss(temperature=0.5)

    def loss(self, views):
        return self.criterion(self.encode(views[0]), self.encode(views[1]))


class BarlowTwins(Method):
    def __init__(self, recipe):
        super().__init__(recipe, 2048, 2048)
        self.criterion = BarlowTwinsLoss(lambda_param=5e-3)

    def loss(self, views):
        return self.recipe.get("loss-scale", 1) * self.criterion(self.encode(views[0]), self.encode(views[1]))


class Simsiam(Method):
    def __init__(self, recipe):
        super().__init__(recipe, 2048, 2048, "all")
        self.prediction = self.make_prediction(512)
        self.criterion = NegativeCosineSimilarity()

    def loss(self, views):
        z0, z1 = self.encode(views[0]), self.encode(views[1])
        return (self.criterion(self.prediction(z0), z1.detach()) + self.criterion(self.prediction(z1), z0.detach())) / 2


class Taught(Method):
    """With a teacher: an average of earlier weights of backbone and projection."""

    def __init__(self, recipe, *dimensions):
        super().__init__(recipe, *dimensions)
        self.teacher = nn.Sequential(copy.deepcopy(self.backbone), self.make_projection())
        self.teacher[1].load_state_dict(self.projection.state_dict())
        deactivate_requires_grad(self.teacher)
        self.momentum = recipe.get("momentum-encoder", 0.99)
        self.final_momentum = recipe.get("momentum-encoder-end", self.momentum)

    def begin_step(self, step, steps):
        momentum = cosine_schedule(step, steps, self.momentum, self.final_momentum)
        update_momentum(nn.Sequential(self.backbone, self.projection), self.teacher, momentum)

    @torch.no_grad()
    def teach(self, x):
        return self.teacher(x)


class Byol(Taught):
    def __init__(self, recipe):
        super().__init__(recipe, 1024, 256)
        self.prediction = self.make_prediction(1024)
        self.criterion = NegativeCosineSimilarity()

    def loss(self, views):
        z0, z1 = self.teach(views[0]), self.teach(views[1])
        return (self.criterion(self.prediction(self.encode(views[0])), z1)
                + self.criterion(self.prediction(self.encode(views[1])), z0)) / 2


class Moco(Taught):
    def __init__(self, recipe):
        super().__init__(recipe, 512, 128, "none")
        self.bank = MemoryBankModule((4096, self.dimension))

    def key(self, view):
        shuffled, order = batch_shuffle(view)
        return F.normalize(batch_unshuffle(self.teach(shuffled), order))

    def contrast(self, view, keys):
        """lightly's NTXentLoss puts the keys into the bank at once, where the other half of the loss has them as
        negatives."""
        q = F.normalize(self.encode(view))
        _, negatives = self.bank(keys)
        logits = torch.cat([(q * keys).sum(1, keepdim=True), q @ negatives], 1) / 0.1
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))

    def loss(self, views):
        k0, k1 = self.key(views[0]), self.key(views[1])
        loss = (self.contrast(views[0], k1) + self.contrast(views[1], k0)) / 2
        self.bank(k1, update=True), self.bank(k0, update=True)
        return loss


class Swav(Method):
    def __init__(self, recipe):
        super().__init__(recipe, 512, 128)
        self.prototypes = SwaVPrototypes(self.dimension, 512)
        self.prototypes.heads[0].bias = None
        self.criterion = SwaVLoss(temperature=0.1, sinkhorn_iterations=3, sinkhorn_epsilon=0.05)

    def begin_step(self, step, steps):
        self.prototypes.normalize()

    def loss(self, views):
        return self.criterion([self.prototypes(F.normalize(self.encode(view))) for view in views], [])


class Dino(Taught):
    def __init__(self, recipe):
        super().__init__(recipe, 2048, 256)
        self.epoch = 0
        self.criterion = DINOLoss(2048, teacher_temp=0.04)

    def make_projection(self):
        return DINOProjectionHead(self.features, self.hidden, self.dimension, 2048, self.norm == "hidden",
                                  freeze_last_layer=1)

    def begin_step(self, step, steps):
        super().begin_step(step, steps)
        self.epoch = step * self.recipe["epochs"] // steps

    def loss(self, views):
        return self.criterion([self.teach(view) for view in views], [self.encode(view) for view in views])

    def after_backward(self):
        self.projection.cancel_last_layer_gradients(self.epoch)


class Mae(Method):
    """As in lightly's example, with a decoder of one block."""

    def __init__(self, recipe):
        from lightly.models.modules import MaskedVisionTransformerDecoderTIMM, MaskedVisionTransformerTIMM

        super().__init__(recipe, 0, 512)
        self.encoder = MaskedVisionTransformerTIMM(self.backbone)
        self.decoder = MaskedVisionTransformerDecoderTIMM(self.encoder.sequence_length - 1, 512, 1, 16)
        self.prediction = nn.Linear(512, 4 * 4 * 3)

    def make_projection(self):
        return nn.Linear(self.features, self.dimension)

    def loss(self, views):
        (view,), tokens = views, self.encoder.sequence_length
        keep, mask = utils.random_token_mask((len(view), tokens), mask_ratio=0.75)
        known = self.projection(self.encoder.encode(view, idx_keep=keep))
        filled = utils.set_at_index(self.decoder.mask_token.repeat(len(view), tokens, 1), keep, known)
        predicted = self.prediction(utils.get_at_index(self.decoder(filled), mask))
        pixels = utils.get_at_index(utils.patchify(view, 4), mask - 1)
        deviation = (pixels.var(-1, keepdim=True) + 1e-6).sqrt()
        return F.mse_loss(predicted, (pixels - pixels.mean(-1, keepdim=True)) / deviation)


METHODS = {"simclr": Simclr, "byol": Byol, "moco": Moco, "simsiam": Simsiam, "barlow_twins": BarlowTwins, "swav": Swav,
           "dino": Dino, "mae": Mae}
