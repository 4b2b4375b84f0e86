import copy

import pytest
import torch

from r2gen.errors import InputError
from r2gen.visual import VisualExtractor, folded, load_imagenet_weights

NAMES = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}


@pytest.fixture
def extractor():
    torch.manual_seed(0)
    return VisualExtractor("small")


def torchvision_weights(extractor):
    """Returns the weights of `extractor` as torchvision would save them, with a classifier."""
    weights = {}
    for key, value in extractor.model.state_dict().items():
        head, rest = key.split(".", 1)
        weights[f"{NAMES[head]}.{rest}"] = value
    return {**weights, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


@pytest.fixture
def saved(tmp_path):
    """Returns a function that writes weights to a file and returns its path."""

    def save(weights):
        torch.save(weights, tmp_path / "weights.pth")
        return tmp_path / "weights.pth"

    return save


@pytest.mark.parametrize(("name", "features"), [("small", 512), ("resnet101", 2048)])
def test_every_32_pixels_give_a_patch(name, features):
    with torch.device("meta"):
        extractor = VisualExtractor(name)
        patches = extractor(torch.zeros(2, 3, 96, 64))
    assert extractor.features == features
    assert patches.shape == (2, 3 * 2, features)


def test_patches_are_in_reading_order(extractor):
    """A change in the upper right corner has its largest effect on the last patch of the first row."""
    image = torch.zeros(1, 3, 256, 256)
    changed = image.clone()
    changed[..., :8, -8:] = 5.0
    with torch.no_grad():
        difference = (extractor.eval()(changed) - extractor(image)).abs().sum(-1)
    assert difference.argmax() == 7


def test_weights_of_torchvision_are_loaded(extractor, saved):
    path = saved(torchvision_weights(extractor))
    other = VisualExtractor("small")
    assert not torch.equal(other.model[0].weight, extractor.model[0].weight)
    load_imagenet_weights(other, path)
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(other.eval()(images), extractor.eval()(images))


def test_old_files_without_batch_counters_are_loaded(extractor, saved):
    weights = torchvision_weights(extractor)
    path = saved({key: value for key, value in weights.items() if "num_batches" not in key})
    load_imagenet_weights(VisualExtractor("small"), path)


def test_weights_that_do_not_fit_are_named(extractor, saved):
    weights = torchvision_weights(extractor)
    weights["conv1.weight"] = torch.zeros(16, 1, 7, 7)
    weights["extra.weight"] = torch.zeros(1)
    weights["odd"] = torch.zeros(1)
    del weights["layer3.0.bn2.bias"]
    before = copy.deepcopy(extractor.state_dict())
    with pytest.raises(InputError) as error:
        load_imagenet_weights(extractor, saved(weights))
    message = str(error.value)
    assert "\n" not in message
    assert "missing layer3.0.bn2.bias" in message
    assert "unknown extra.weight, odd" in message
    assert "conv1.weight [16, 1, 7, 7], not [16, 3, 7, 7]" in message
    assert all(torch.equal(value, before[key]) for key, value in extractor.state_dict().items())


def test_long_lists_of_mismatches_are_shortened(extractor, saved):
    with pytest.raises(
        InputError, match=r"missing conv1\.weight, bn1\.weight, bn1\.bias and \d+ more$"
    ) as error:
        load_imagenet_weights(extractor, saved({}))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 broken"])
def test_a_file_that_is_no_state_dict_is_the_users_mistake(extractor, tmp_path, content):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"weights\.pth: cannot be read") as error:
        load_imagenet_weights(extractor, path)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_list_are_the_users_mistake(extractor, tmp_path, saved):
    with pytest.raises(InputError, match="cannot be read"):
        load_imagenet_weights(extractor, tmp_path / "none.pth")
    with pytest.raises(InputError, match="state dict of tensors"):
        load_imagenet_weights(extractor, saved([1, 2]))


def test_activation_checkpointing_changes_neither_gradients_nor_running_statistics(extractor):
    saving = VisualExtractor("small", activation_checkpointing=True)
    saving.load_state_dict(extractor.state_dict())
    images = torch.randn(2, 3, 64, 64)
    for module in (extractor, saving):
        torch.cat([module(images), module(images.flip(0))]).square().mean().backward()
    for (name, plain), checkpointed in zip(extractor.named_parameters(), saving.parameters(), strict=True):
        assert torch.equal(plain.grad, checkpointed.grad), name
    for (name, plain), checkpointed in zip(extractor.named_buffers(), saving.buffers(), strict=True):
        assert torch.equal(plain, checkpointed), name
    assert saving.model[4][0].bn1.num_batches_tracked == 2
    assert saving.model[4][0].bn1.momentum == 0.1


def test_activation_checkpointing_computes_the_stages_again(extractor):
    """Otherwise it would save no memory."""
    extractor.activation_checkpointing = True
    runs = []
    extractor.model[5].register_forward_pre_hook(lambda *_: runs.append(1))
    patches = extractor(torch.randn(1, 3, 64, 64))
    assert len(runs) == 1
    patches.sum().backward()
    assert len(runs) == 2


@pytest.mark.parametrize("name", ["small", "resnet101"])
def test_folded_batch_norms_give_the_same_features_and_leave_the_extractor_alone(name):
    torch.manual_seed(0)
    extractor = VisualExtractor(name).double()
    extractor(torch.randn(4, 3, 64, 64).double())  # initialises the running statistics
    extractor.eval()
    before = {key: value.clone() for key, value in extractor.state_dict().items()}
    images = torch.randn(2, 3, 64, 64).double()
    lean = folded(extractor)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in lean.modules())
    expected = extractor(images)
    assert (lean(images) - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert all(torch.equal(value, before[key]) for key, value in extractor.state_dict().items())
