-- The quotas of a call, from its first argument: for each the name of its algorithm and three numbers.
local quotas, behind = {}, 1
while behind <= #ARGV[1] do
  local name, a, b, c
  name, a, b, c, behind = struct.unpack('<sI8I8I8', ARGV[1], behind)
  quotas[#quotas + 1] = { name, a, b, c }
end
