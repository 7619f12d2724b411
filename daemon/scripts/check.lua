-- Is this token the holder's?
--
-- KEYS  as common, 1 to 6      ARGV  4 token
-- Answer  {'held', fence, left}  {'lost', fence}  {'recovering', fence}: what the token stands for may yet be put back
--
-- Invariant: writes nothing, and says 'held' of the holder's token alone.

-- include common.lua
-- include library.lua
local token = tonumber(ARGV[4])
if lease and lease.token == token then
    return {'held', fence, left_of(lease)}
end
if window and there < token then
    return {'recovering', fence}
end
return {'lost', fence}
