-- Many acquires and releases of the plain kind in one run: locks that nobody holds, leases that this node granted, and no waiters.
--
-- KEYS  1 to 4 as common; then the n locks; then their n queues
-- ARGV  1 to 3 as common; then for each lock: lease id, ttl ms ('' for a release), "node confirm granted_ms owner" (a release: node)
-- Answer  {'plain', fence, then for each lock the token of the lease granted or released, 0 where the case is not plain: nothing was done,
--         and the call's own script has to look at it}
--
-- Invariants: no error ends the run once something was written (hence pcall): what Redis refuses here is refused again, by itself, in the call's
-- own script. Each acquire or release does what its own script would have done at this moment, or nothing. A lock that stands twice in one run is no
-- exception: a SET is NX, a DEL is of a lease that stood there when the run began, and never follows a SET of the same run.
local n = (#KEYS - 4) / 2
local seen = redis.call('MGET', unpack(KEYS, 1, 4 + n))
local fence = seen[2]
if seen[1] ~= ARGV[1] or seen[3] ~= ARGV[3] or not fence or #fence < #ARGV[2] or #fence == #ARGV[2] and fence < ARGV[2] then
    return {'differs', 0}
end
local answer = {'plain', fence}
local queues = redis.call('EXISTS', unpack(KEYS, 5 + n, 4 + 2 * n))
local exhausted = #fence > 16 or #fence == 16 and fence >= '9007199254740000'
for i = 1, n do
    local stored, id, ttl, tail = seen[4 + i], ARGV[1 + 3 * i], ARGV[2 + 3 * i], ARGV[3 + 3 * i]
    local token = 0
    if seen[4] or exhausted or queues > 0 and redis.call('EXISTS', KEYS[4 + n + i]) == 1 then
        token = 0
    elseif ttl ~= '' then
        if not stored then
            local moved = redis.pcall('INCR', KEYS[2])
            if type(moved) == 'number' then
                local made = redis.pcall('SET', KEYS[4 + i], id .. string.format(' %.0f ', moved) .. tail, 'PX', ttl, 'NX')
                token = type(made) == 'table' and made.ok and moved or 0
            end
        end
    elseif stored and string.sub(stored, 1, 36) == id then
        local held, node = string.match(stored, '^(%d+) (%x+) ', 38)
        if node == tail and redis.pcall('DEL', KEYS[4 + i]) == 1 then
            token = tonumber(held)
        end
    end
    answer[2 + i] = token
end
return answer
