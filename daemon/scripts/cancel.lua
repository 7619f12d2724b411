-- Gives up a waiter's place and undoes a grant that nobody learned of.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 node  6 confirm number of the request: the grant to undo, the claim to give up ('0': no grant, and every claim of
--       this node)  7 '1' = give up the claim to a place, '2' = and the client may come back: the ticket of the place is remembered for a while
-- Answer  {'cancelled', fence, undone, woken, waiters, token, left, held_ms, owner, own, delay}: undone 1 if a grant was taken back; token to owner
--         describe who holds the lock afterwards (0 and '' when nobody does); own 1 if that is this very lease id, by another call; delay: for how long
--         nobody is granted once that lease is over, or, when nobody holds it, for how long yet
--
-- Invariants: deletes a lease only if lease id, node and confirm number are those of the call being undone, so it can't kill a lease that a
-- retry was told it holds; takes away a place only with the last claim to it. While leases are put back, what stands may be an older copy of what
-- another node vouches for: the tombstone keeps lesser tokens out, not this one.

-- include common.lua
-- include library.lua
local id, own = ARGV[4], ARGV[5]
local undone, was_first = 0, false
local mine = lease or ended
if mine and mine.id == id and mine.node == own and mine.confirm == ARGV[6] and ARGV[6] ~= '0' then
    bury(mine.token - 1, 0) -- nobody was told of it: there is nothing to delay
    undone, lease, ended, stored = 1, nil, nil, false
end
if ARGV[7] ~= '0' then
    local claims, others = claims_of(id), {}
    for _, claim in ipairs(claims) do
        if claim.node ~= own or (claim.number ~= ARGV[6] and ARGV[6] ~= '0') then
            others[#others + 1] = claim
        end
    end
    if #others < #claims then
        was_first = redis.call('ZRANK', KEYS[6], id) == 0
        local ticket = redis.call('ZSCORE', KEYS[6], id)
        if ticket and #others == 0 and ARGV[7] == '2' then
            redis.call('SET', left_key(id), text(tonumber(ticket)), 'PX', COME_BACK_MS)
        end
        keep_claims(id, others)
    end
end
local woken = ''
if not window and (undone == 1 or (was_first and not lease and not foreign)) then -- in a delay the next one has to know until when
    woken = wake_next(own)
end
local answer = {'cancelled', fence, undone, woken, redis.call('ZCARD', KEYS[6]), 0, 0, 0, '', lease and lease.id == id and 1 or 0, 0}
if lease then
    answer[6], answer[7], answer[8], answer[9] = lease.token, left_of(lease), math.max(0, now_ms() - lease.granted), lease.owner
    answer[11] = lease.delay
elseif ended or delayed then
    answer[11] = redis.call('PTTL', KEYS[5])
end
return answer
