from ottla.broker.context import BrokerContext

class TransactionGate:
    def __init__(self, broker: BrokerContext) -> None: ...
