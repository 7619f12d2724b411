-- Takes the lock, or takes a place in its queue.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 ttl and delay, ms  6 "node confirm granted_ms owner", with the lease's terms behind the node  7 "queue ticket most sweep number": queue 1 = take a place when it is not free, 2 = and this lease id may have had one before; the
--       ticket of an earlier place (0 none); the most waiters this lock may have; from which place on to look for dead waiters (0 no);
--       the confirm number for a lease that is there already
-- Answer
--   {'granted', token}                                   token is new and the greatest ever; ttl, time and owner as asked
--   {'granted', fence, token, ttl, granted_ms, owner, delay, most}   most: how long it may be held from now on, 0 no bound; the same, where they are others
--   {'repeated', ...the same...}                         this lease id holds it already: the same token (after a loss of data maybe a
--                                                        greater one), the longer ttl
--   {'held', fence, ticket, waiters, token, left, held_ms, owner, delay}   delay: for how long nobody is granted once that is over
--   {'delayed', fence, ticket, waiters, left}            nobody holds it, and nobody is granted: a lease ended, and not by a release
--   {'turn', fence, ticket, waiters, woken}              free, but an earlier waiter's: woken is its lease id if it waits at this node, or ''
--   {'recovering', fence, ticket}                        the window is open: nothing is granted
--   {'full', fence}  {'foreign', fence}  {'exhausted', fence}  {'more', fence}: run it again
-- ticket is 0 when no place was taken. A ticket comes from the fence, so it is unique and orders waiters across nodes and failovers.
--
-- Invariants: a lease is granted here and nowhere else; the token moves in the same run; nobody passes a live earlier waiter; after the
-- SET that makes the lease nothing can fail, so an error answer means no grant.

-- include common.lua
if #fence > 16 or #fence == 16 and fence >= '9007199254740990' then
    return {'exhausted', fence}
end

-- The plain case: nobody holds it, nobody waits.
if not window and not stored and redis.call('EXISTS', KEYS[6]) == 0 then
    local token = redis.call('INCR', KEYS[2])
    if redis.call('SET', KEYS[5], ARGV[4] .. string.format(' %.0f ', token) .. ARGV[6], 'PX', ARGV[5], 'NX') then
        return {'granted', token}
    end
    return {'foreign', token}
end

-- include library.lua
local id, tail = ARGV[4], ARGV[6]
local own, terms, confirm = string.match(tail, '^(%x+)(%S*) (%d+) ')
local wait, place, most, sweep_from, number = string.match(ARGV[7], '^(%d) (%d+) (%d+) (%d+) (%d+)$')

-- Returns the ticket; 0: none wanted; nil: the queue is full.
local function enqueue()
    if wait == '0' then
        return 0
    end
    local ticket = redis.call('ZSCORE', KEYS[6], id)
    if not ticket then
        if redis.call('ZCARD', KEYS[6]) >= tonumber(most) then
            return nil
        end
        ticket = place
        if ticket == '0' and wait == '2' then
            ticket = redis.call('GET', left_key(id)) or place
            redis.call('DEL', left_key(id))
        end
        if ticket == '0' then
            fence = redis.call('INCR', KEYS[2])
            ticket = text(fence)
        end
        redis.call('ZADD', KEYS[6], ticket, id)
    end
    local claims = {{node = own, life = life, number = confirm}}
    for _, claim in ipairs(claims_of(id)) do
        if claim.node ~= own or claim.number ~= confirm then
            claims[#claims + 1] = claim
        end
    end
    keep_claims(id, claims)
    redis.call('PEXPIRE', KEYS[6], QUEUE_MS)
    redis.call('PEXPIRE', waiters, QUEUE_MS)
    return tonumber(ticket)
end

if sweep_from ~= '0' and not window then
    sweep(tonumber(sweep_from))
end
if window then
    local ticket = enqueue()
    return ticket and {'recovering', fence, ticket} or {'full', fence}
end
if foreign then
    return {'foreign', fence}
end

if lease and lease.id ~= id then
    local ticket = enqueue()
    if not ticket then
        return {'full', fence}
    end
    return {'held', fence, ticket, redis.call('ZCARD', KEYS[6]), lease.token, left_of(lease), math.max(0, now_ms() - lease.granted), lease.owner, lease.delay}
end

-- Made by an earlier run of this very call, and over before anybody could be told: it was never held, and nothing is delayed by it.
if ended and ended.id == id and ended.node == own and ended.confirm == confirm then
    redis.call('DEL', KEYS[5])
    ended, stored = nil, false
end

if ended or delayed then
    local ticket = enqueue()
    if not ticket then
        return {'full', fence}
    end
    return {'delayed', fence, ticket, redis.call('ZCARD', KEYS[6]), math.max(1, redis.call('PTTL', KEYS[5]))}
end

if not lease then
    local first, host = first_waiter()
    if first == 'more' then
        return {'more', fence}
    end
    if first and first ~= id then
        local ticket = enqueue()
        if not ticket then
            return {'full', fence}
        end
        if host ~= own then
            tell(host, 'wake ' .. first .. ' ' .. name)
        end
        return {'turn', fence, ticket, redis.call('ZCARD', KEYS[6]), host == own and first or ''}
    end
    if first then
        take_turn(id, own, confirm)
    end
    if wait == '2' then
        redis.call('DEL', left_key(id))
    end
    local token = redis.call('INCR', KEYS[2])
    if write(id, token, tail, ARGV[5]) then
        return {'granted', token}
    end
    return {'foreign', token}
end

-- This id's own lease: an earlier call was granted it, and may have been told. So this call must not undo it: it takes the lease under a number that
-- no undo carries; unless it was an earlier run of this very call. A lease from before this life of the data may be stale: it gets a token of this life.
take_turn(id, own, confirm)
local mine = lease.node == own and lease.confirm == confirm
local ttl = tonumber(ARGV[5]) - tonumber(string.match(terms, '^%+(%d+)') or '0')
local left, token = math.max(ttl, left_of(lease)), lease.token
if token <= tonumber(life) then
    token = redis.call('INCR', KEYS[2])
    fence = token
end
left = prolong(lease, token, own, mine and confirm or number, left)
forget(lease, own)
return {mine and 'granted' or 'repeated', fence, token, left, lease.granted, lease.owner, lease.delay, lease.most or 0}
