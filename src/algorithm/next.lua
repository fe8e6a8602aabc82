-- The processes to nudge, as the next ones can depart early at `opening`; see State::next in mod.rs. A function, as Lua limits
-- the number of local variables.
(function()
  offered, rest = {}, rest or sub(tail, start, cuts[1][1] - 1) .. sub(tail, cuts[1][2], at - 1)
  local waiting, is_next, place, sum = { { 0, 0, 0, front[3], front[4], 0 } }, {}, 1, 0
  if free > 0 then waiting = {} end
  while place <= #rest and free > 0 do
    local who, deadline, bytes = unpack('<I7I7I2', rest, place)
    if bytes >= 32768 and deadline + 250000 >= now then
      bytes = bytes - 32768
      local first, _, @list(units) = unpack('<I7I7@sums', rest, place + 16)
      local rank, units = (who % 128 - who % 16) / 16, units@all
      if places.released > 0 then units = units@place end --places
      local share = who % 2048 >= 128 and unpack('<I7', rest, place + 9 + bytes) or 1
      waiting[#waiting + 1] = { rank, fair and fair.leads[share * 8 + rank] or 0, first, who, deadline, units }
    end
    place = place + 16 + bytes % 32768
  end
  table.sort(waiting, function(one, other)
    for i = 1, 4 do
      if one[i] ~= other[i] then return one[i] < other[i] end
    end
  end)
  -- With reserves, the order is not known.
  if free > 0 and special % 64 >= 32 then free = math.huge end
  for _, it in ipairs(waiting) do
    local is_last = sum >= free
    sum = sum + it[6]
    if it[5] > opening + late then
      offered[#offered + 1], is_next[it[4]] = it[4], true
    end
    if is_last or #offered == 255 then break end
  end
  if special < 256 then return end
  -- They count as overdue soon, as one may be dead.
  is_same, latest = false, mine ~= '' and unpack('<I7', mine, 8) or 0
  local soon, slices, from = (opening > now and opening or now) + 120000, {}, 1
  place = 1
  while place <= #rest do
    local who, ends, bytes = unpack('<I7I7I2', rest, place)
    if is_next[who] and ends > soon then
      slices[#slices + 1], ends = sub(rest, from, place + 6) .. pack('<I7', soon), soon
      from = place + 14
    end
    if ends > latest then latest = ends end
    place = place + 16 + bytes % 32768
  end
  rest = concat(slices) .. sub(rest, from)
end)()
