"""What happens to one case: what is sent (`job`), computed (`measure`, in a `child`) and watched (`guard`)."""
