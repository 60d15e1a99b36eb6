return ask(holder, owner, ttl, limit, mode, address)
