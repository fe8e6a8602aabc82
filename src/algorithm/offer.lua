-- Offers released places to the next two processes; see concurrent.rs. Only if a quota limits how many requests are in
-- progress.

local waiting, place = {}, 1
latest = 0
while place <= #rest do
  local who, deadline, size = unpack('<I7I7I2', rest, place)
  local first, _, @list(units) = 0, 0, @list(0)
  if size >= 32768 then
    size = size - 32768
    first, _, @list(units) = unpack('<I7I7@sums', rest, place + 16)
  end
  if units@place > 0 and deadline + 250000 >= now then
    waiting[#waiting + 1] = { (who % 128 - who % 16) / 16, first, who, place, deadline, units@place }
  end
  place = place + 16 + size
end
table.sort(waiting, function(a, b)
  for i = 1, 3 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
end)
places.wanted = 0
for i = 1, waiting[2] and 2 or #waiting do
  local next = waiting[i]
  places.wanted = places.wanted + next[6]
  if special >= 256 and next[5] > now + 120000 then
    rest = sub(rest, 1, next[4] + 6) .. pack('<I7', now + 120000) .. sub(rest, next[4] + 14)
  end
end
if #waiting > 0 then
  -- Arrival alone does not decide between shares.
  offered = fair and { 0, 0 } or { waiting[1][3], waiting[2] and waiting[2][3] or 0 }
end
place = 1
while place <= #rest do
  local deadline, size = unpack('<I7I2', rest, place + 7)
  if deadline > latest then latest = deadline end
  place = place + 16 + size % 32768
end
