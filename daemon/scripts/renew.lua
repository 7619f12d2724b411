-- Gives the holder's lease a new ttl (longer or shorter), counted from now.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 ttl ms  6 node  7 confirm number  8 the token this node's own table has for the lease (0: not in it)
--       9 "granted_ms owner" from there, for putting it back  10 and "delay most": how long it may be held from now on, 0 no bound
-- Answer  {'renewed', fence, token, ttl, granted_ms, owner, delay, most}  {'lost', fence}  {'recovering', fence}  {'foreign', fence}
--
-- Invariants: never creates a lease, except in the window one that this node itself vouches for; the token stays the same; so does the moment up to
-- which the lease may be held, and ttl is cut to what is left until then.

-- include common.lua

-- The plain case: this node granted it or renewed it last, and there are no terms.
if stored and not window and #stored <= 512 and string.sub(stored, 1, 36) == ARGV[4] then
    local token, node, granted, owner = string.match(stored, '^(%d+) (%x+) %d+ (%d+) (.*)$', 38)
    if node == ARGV[6] then
        redis.call('SET', KEYS[5], table.concat({ARGV[4], token, node, ARGV[7], granted, owner}, ' '), 'PX', ARGV[5])
        return {'renewed', fence, token, ARGV[5], granted, owner, 0, 0}
    end
end

-- include library.lua
local id, ttl, own, confirm, known = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8])

if lease and lease.id == id and (not window or lease.token >= known) then
    if window and known == 0 then
        return {'recovering', fence}
    end
    ttl = prolong(lease, lease.token, own, confirm, ttl)
    forget(lease, own)
    return {'renewed', fence, lease.token, ttl, lease.granted, lease.owner, lease.delay, lease.most or 0}
end

if not window then
    return {'lost', fence}
end
if known == 0 then
    return {'recovering', fence}
end
if there >= known or foreign then
    return {'lost', fence}
end
-- Nothing there, or something older: an older copy of this very lease too, whose holder was told the later token, or a later end.
local granted, owner = string.match(ARGV[9], '^(%d+) (.*)$')
local delay, most = string.match(ARGV[10], '^(%d+) (%d+)$')
local again = {id = id, granted = tonumber(granted), owner = owner, delay = tonumber(delay), most = most ~= '0' and tonumber(most) or nil}
ttl = prolong(again, known, own, confirm, ttl)
if not ttl then
    return {'foreign', fence}
end
raise_fence(known)
return {'renewed', fence, known, ttl, again.granted, owner, again.delay, again.most or 0}
