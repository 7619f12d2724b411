-- Gives the holder's lease a new ttl (longer or shorter), counted from now.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 ttl ms  6 node  7 confirm number  8 the token this node's own table has for the lease (0: not in it)
--       9 "granted_ms owner" from there, for putting it back
-- Answer  {'renewed', fence, token, ttl, granted_ms, owner}  {'lost', fence}  {'recovering', fence}  {'foreign', fence}
--
-- Invariants: never creates a lease, except in the window one that this node itself vouches for; the token stays the same.

-- include common.lua
-- include library.lua
local id, ttl, own, confirm, known = ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])

if lease and lease.id == id and (not window or lease.token >= known) then
    if window and known == 0 then
        return {'recovering', fence}
    end
    write(id, lease.token, own .. ' ' .. confirm .. ' ' .. text(lease.granted) .. ' ' .. lease.owner, ttl)
    forget(lease, own)
    return {'renewed', fence, lease.token, tonumber(ttl), lease.granted, lease.owner}
end

if not window then
    return {'lost', fence}
end
if known == 0 then
    return {'recovering', fence}
end
local there = lease and lease.token or released or 0
if there >= known or (stored and not lease and not released) then
    return {'lost', fence}
end
-- Nothing there, or something older: an older copy of this very lease too, whose holder was told the later token.
if not write(id, known, own .. ' ' .. confirm .. ' ' .. ARGV[9], ttl) then
    return {'foreign', fence}
end
raise_fence(known)
local granted, owner = string.match(ARGV[9], '^(%d+) (.*)$')
return {'renewed', fence, known, tonumber(ttl), tonumber(granted), owner}
