"""Commands that list what there is: accelerators, boards, operators."""
