"""What pods and the Node notice when parts die, restart, vanish or lie: nothing, or what cannot be helped."""
