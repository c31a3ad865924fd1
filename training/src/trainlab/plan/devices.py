"""Table of accelerators: memory, dense BF16 peak, bandwidth, and the MFU that good runs reach.

Used by estimate (time, memory) and checks (what a device cannot do). Peaks are dense; data sheets print them doubled "with
sparsity". Each entry names its source.
"""

import difflib
import re
from dataclasses import dataclass, replace

from trainlab.errors import UserError

# Share of the reported memory that a run may plan with: the L40S reports 44.99 GiB and runs are safe up to a peak of 42
# (CUDA context, NCCL buffers, allocator fragmentation).
USABLE_SHARE = 0.93
# Sustained FLOP/s of one CPU core in float32 matrix products: SmolLM2-135M trains 170 tokens/s on two cores (measured).
CPU_CORE_FLOPS = 7.0e10
FLOAT32_SHARE = {7.5: 1 / 8, 8.0: 1 / 16, 8.6: 1 / 4, 8.9: 1 / 4, 9.0: 1 / 16, 10.0: 1 / 28}
"""Of the BF16 (FP16) peak without tensor cores, by capability: T4, A100, A40, L40S, H100, B200 (data sheets)."""

BF16_CAPABILITY = 8.0
TF32_CAPABILITY, TF32_SHARE = 8.0, 0.5
"""The first capability that has TF32, and its share of the BF16 peak: of A100, A40, L4, L40S, H100, B200 (data sheets)."""


@dataclass(frozen=True)
class Device:
    """One accelerator; memory in GiB, rates in FLOP/s and bytes/s, `capability` as CUDA counts it."""

    name: str
    nominal_gib: float  # what the data sheet and people call it
    reported_gib: float  # what nvidia-smi reports as total
    bf16: float  # dense
    bandwidth: float
    capability: float
    mfu_good: float  # what a well-tuned run reaches: used for times
    link: float = 25e9  # to another GPU of its node, one direction: PCIe 4 x16 without NVLink

    def peak(self, precision: str) -> float:
        """Return FLOP/s in `precision`, bf16, tf32 or fp32: without tensor cores a GPU is slower, a CPU is not."""
        if precision == "tf32" and self.capability >= TF32_CAPABILITY:
            return self.bf16 * TF32_SHARE
        precision = "fp32" if precision == "tf32" else precision
        return self.bf16 * (FLOAT32_SHARE[self.capability] if precision == "fp32" and not self.is_cpu else 1.0)

    @property
    def usable_gib(self) -> float:
        """GiB that a run may plan with."""
        return self.reported_gib * USABLE_SHARE

    @property
    def is_cpu(self) -> bool:
        """True for the CPU stand-in, whose `bf16` is the float32 rate of the requested cores."""
        return self.capability == 0


DEVICES = {
    device.name: device
    for device in (
        # NVIDIA L40S data sheet (362.05 dense, 733 with sparsity; 864 GB/s); 46,068 MiB with ECC. No published MFU: assumed.
        Device("L40S", 48, 44.99, 362.05e12, 864e9, 8.9, 0.40),
        # NVIDIA A40 data sheet (149.7 dense BF16, 696 GB/s); 46,068 MiB with ECC.
        Device("A40", 48, 44.99, 149.7e12, 696e9, 8.6, 0.35),
        # NVIDIA L4 data sheet (121 dense BF16, 242 dense FP8, 300 GB/s); 23,034 MiB.
        Device("L4", 24, 22.49, 121e12, 300e9, 8.9, 0.40),
        # NVIDIA A10G as AWS lists it (70 dense BF16, 600 GB/s); 23,028 MiB.
        Device("A10G", 24, 22.49, 70e12, 600e9, 8.6, 0.40),
        # NVIDIA T4 data sheet (65 FP16, 320 GB/s); no BF16 tensor cores: capability 7.5. 15,360 MiB.
        Device("T4", 16, 15.0, 65e12, 320e9, 7.5, 0.30),
        # NVLink by data sheets, half of what they sum over both directions: A100 600, H100 and H200 900, B200 1,800 GB/s.
        # NVIDIA A100 data sheet (312 dense BF16; 1,555 and 2,039 GB/s). Best: llm-foundry 7 B, 8 GPUs, 64.2 %.
        Device("A100-40GB", 40, 40.0, 312e12, 1555e9, 8.0, 0.50, 300e9),
        Device("A100-80GB", 80, 80.0, 312e12, 2039e9, 8.0, 0.50, 300e9),
        # NVIDIA H100 SXM data sheet (989.4 / 1,978.9 dense, 3.35 TB/s); 81,559 MiB. Best: nanochat 8 GPUs, 50 %.
        Device("H100-80GB", 80, 79.65, 989.4e12, 3350e9, 9.0, 0.45, 450e9),
        # NVIDIA H200 data sheet (as H100, 4.8 TB/s); 143,771 MiB.
        Device("H200", 141, 140.4, 989.4e12, 4800e9, 9.0, 0.45, 450e9),
        # NVIDIA HGX B200 data sheet, per GPU (2,250 / 4,500 dense, 7.7 TB/s, 180 GB); MFU unpublished: assumed as H100.
        Device("B200", 180, 178.0, 2250e12, 7700e9, 10.0, 0.40, 900e9),
    )
}
ALIASES = {"H100": "H100-80GB", "A100": "A100-80GB", "A100-SXM4-80GB": "A100-80GB", "A100-SXM4-40GB": "A100-40GB"}


SLICE = re.compile(r"mig-(?:\d+c\.)?(\d+)g\.(\d+)gb", re.IGNORECASE)
"""In the name of a resource or a product label: a slice's sevenths of the processors and its GB."""
SEVENTHS = 7


class UnknownDevice(UserError):
    """A device missing from the table: nothing is wrong with it, but nothing can be computed for it."""


def find(name: str) -> Device:
    """Return the device of a name: ours, or the device plugin's product label (`NVIDIA-L40S`, `..-SHARED`, `..-MIG-1g.10gb`).

    Raises UnknownDevice with the known names.
    """
    if slice_ := SLICE.search(name):
        if not (gpu := name[: slice_.start()].rstrip("- ")) or "/" in gpu:
            raise UnknownDevice(f"--gpu {name}: names no GPU; name it before the slice, as in A100-80GB-MIG-1g.10gb")
        return slice_of(find(gpu), name)
    text = re.sub(r"^(NVIDIA[- ])?(TESLA[- ])?", "", name.strip().upper()).removesuffix("-SHARED")
    text = ALIASES.get(text, text.removesuffix("-HBM3"))
    by_upper = {known.upper(): device for known, device in DEVICES.items()}
    if text in by_upper:
        return by_upper[text]
    close = difflib.get_close_matches(text, list(by_upper), n=1)
    hint = f" (did you mean {by_upper[close[0]].name}?)" if close else ""
    raise UnknownDevice(f"--gpu {name}: not in the table{hint}; known: {', '.join(DEVICES)}")


def slice_of(device: Device, name: str) -> Device:
    """Return the slice (MIG) of a GPU that the name of a resource or product holds, with its part of the memory and of the rates.

    A profile's GB are taken as 10^9 bytes.
    """
    match = SLICE.search(name)
    if match is None:
        return device
    part, gigabytes = int(match[1]) / SEVENTHS, int(match[2])
    return replace(
        device,
        name=f"{device.name} {match[0].lower()}",
        nominal_gib=gigabytes,
        reported_gib=gigabytes * 1e9 / 2**30,
        bf16=device.bf16 * part,
        bandwidth=device.bandwidth * gigabytes / device.nominal_gib,
    )


def cpu(cores: float, memory_bytes: float) -> Device:
    """Return a stand-in for a pod without GPU: `cores` requested cores, the pod's memory limit as device memory."""
    gib = memory_bytes / 2**30
    rate = cores * CPU_CORE_FLOPS
    return Device(f"CPU, {cores:g} cores", gib, gib, rate, 2e10, 0, 1.0)
