-- The head of every script but attach: is this still the life of the data that the node attached to?
--
-- KEYS  1 incarnation  2 fence  3 node (this node's own)  4 recovery, and for calls on a lock: 5 lock  6 queue
-- ARGV  1 the incarnation the node attached to  2 the greatest fence it ever saw  3 its attach's generation
-- Answer  {'differs', 0} with nothing written unless the stored incarnation and generation are the node's own and the fence is there
--         and not below what the node saw. Every other answer is {status, fence, ...}: the node learns the fence from each one.
--
-- Every run pays for this, so it makes no function (that costs as much as a call into Redis) and compares the fence as the digits it is:
-- canonical decimals (attach sees to it) are in the order of their lengths, then of their bytes. library.lua makes it a number.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5] or KEYS[4])
local fence = seen[2]
if seen[1] ~= ARGV[1] or seen[3] ~= ARGV[3] or not fence or #fence < #ARGV[2] or #fence == #ARGV[2] and fence < ARGV[2] then
    return {'differs', 0}
end
local window, stored = seen[4], seen[5]
