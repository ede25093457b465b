"""What must not leave a site is taken out of texts and records: secrets, people, hosts. Pure.

``secrets`` finds secrets (with ``secret_names``, ``secret_values``, ``secret_commands``, ``private_keys``),
``environment`` printed variables, ``spans`` replaces what they find, ``names`` knows people and hosts;
``text`` and ``records`` put all to use. What was taken out is counted by kind.
"""
