-- Takes the lock, or takes a place in its queue.
--
-- KEYS  as common, 1 to 7
-- ARGV  4 lease id  5 ttl ms  6 owner  7 node  8 confirm number  9 life (base of the incarnation)  10 '1' = queue when it is not free
--       11 ticket of an earlier place ('0' none)  12 the most waiters this lock may have  13 name
-- Answer
--   {'granted', fence, token, ttl, granted_ms, owner}    token is new and the greatest ever
--   {'repeated', ...the same...}                         this lease id holds it already: the same token, the longer ttl
--   {'held', fence, ticket, waiters, token, left, held_ms, owner}
--   {'turn', fence, ticket, waiters}                     free, but an earlier waiter's
--   {'recovering', fence, ticket}                        the window is open: nothing is granted
--   {'full', fence}  {'foreign', fence}  {'exhausted', fence}  {'more', fence}: run it again
-- ticket is 0 when no place was taken. A ticket comes from the fence, so it is unique and orders waiters across nodes and failovers.
--
-- Invariants: a lease is granted here and nowhere else; the token moves in the same run; nobody passes a live earlier waiter; after the SET nothing can
-- fail, so an error answer means no grant.
local id, ttl, owner, node, confirm, life, wait = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10] == '1'

if fence >= 9007199254740990 then
    return {'exhausted', fence}
end

local function enqueue()
    if not wait then
        return 0
    end
    local ticket = redis.call('ZSCORE', KEYS[6], id)
    if not ticket then
        if redis.call('ZCARD', KEYS[6]) >= tonumber(ARGV[12]) then
            return -1
        end
        ticket = ARGV[11]
        if ticket == '0' then
            ticket = text(redis.call('INCR', KEYS[2]))
            fence = tonumber(ticket)
        end
        redis.call('ZADD', KEYS[6], ticket, id)
    end
    redis.call('HSET', KEYS[7], id, node .. ' ' .. life)
    return tonumber(ticket)
end

if window then
    local ticket = enqueue()
    if ticket < 0 then
        return {'full', fence}
    end
    return {'recovering', fence, ticket}
end

local lease, released
if stored then
    lease, released = parse(stored)
    if not lease and not released then
        return {'foreign', fence}
    end
end

if lease and lease.id ~= id then
    local ticket = enqueue()
    if ticket < 0 then
        return {'full', fence}
    end
    return {'held', fence, ticket, redis.call('ZCARD', KEYS[6]), lease.token, redis.call('PTTL', KEYS[5]), math.max(0, now_ms() - lease.granted), lease.owner}
end

if lease and lease.token > tonumber(life) then
    local left = math.max(ttl, redis.call('PTTL', KEYS[5]))
    leave_queue(id)
    write(id, lease.token, node, confirm, lease.granted, lease.owner, text(left), 'XX')
    if lease.node ~= node then
        tell(lease.node, 'forget ' .. id .. ' ' .. ARGV[13])
    end
    local own = lease.node == node and lease.confirm == confirm -- an earlier run of this very call made it
    return {own and 'granted' or 'repeated', fence, lease.token, left, lease.granted, lease.owner}
end

-- Free; or this id's lease from before this life of the data, which may be stale: it gets a token of this life.
if not lease then
    local first, host = first_waiter(life)
    if first == 'more' then
        return {'more', fence}
    end
    if first and first ~= id then
        local ticket = enqueue()
        if ticket < 0 then
            return {'full', fence}
        end
        if host ~= node then
            tell(host, 'wake ' .. first .. ' ' .. ARGV[13])
        end
        return {'turn', fence, ticket, redis.call('ZCARD', KEYS[6])}
    end
    if first then
        leave_queue(id)
    end
else
    leave_queue(id)
end
local granted, left = now_ms(), ttl
if lease then
    granted, left, owner = lease.granted, math.max(ttl, redis.call('PTTL', KEYS[5])), lease.owner
end
local token = redis.call('INCR', KEYS[2])
if not write(id, token, node, confirm, granted, owner, text(left), stored and 'XX' or 'NX') then
    return {'foreign', token}
end
return {'granted', token, token, left, granted, owner}
