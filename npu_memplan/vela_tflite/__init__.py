"""A planned network in Vela's container, for TFLite Micro and Arm's driver as they are: `compile --emit vela-tflite`.

Invariant: plans are for TFLite Micro, not for our own C: its kernels run the CPU operators, store before they have read
everything, and know no memory but the arena. So nothing that such an operator writes lies on what it reads, and what
reaches it is in the arena; inside the NPU's operators all freedoms of our own plans hold.
"""
