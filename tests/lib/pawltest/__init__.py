"""What the system tests stand on: a redis-server and a pawld of one's own, a strict HTTP client, a proxy that misbehaves on request.

    from pawltest.redis import RedisServer      a real redis-server: start, stop, kill, freeze, restart with or without its data
    from pawltest.pawld import Pawld            the built daemon (PAWLD names it): start, stop, kill, freeze, log lines, sizes
    from pawltest.http import Conn, Api         bytes out, one strictly read reply in; and the calls of the API by name
    from pawltest.tls import authority           certificates, and a TLS client that says exactly what it is told
    from pawltest.proxy import Proxy            delay, stall, drop, cut and count what passes between any two of them
    from pawltest.waiters import Waiter, gather clients whose answer comes later, one or thousands, and the order in which they are answered
    from pawltest.wait import until             poll for a state, with a deadline; nothing here sleeps and hopes
    from pawltest.fixtures import *             the fixtures that end it all again, also when a test fails

Standard library only. Every process is ended by its own pid. Nothing leaves the loopback interface.
"""
