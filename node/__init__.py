"""What both doors stand on: inventory, health, rules, offers, edits, CDI, sockets."""
