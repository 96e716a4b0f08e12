"""What docs/tools.md takes for granted."""


class bank:
    @staticmethod
    async def charge(amount, key):
        return f"charged {amount} under {key}"
