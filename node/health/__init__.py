"""How a device is: health as a value with its reason, time and way back."""
