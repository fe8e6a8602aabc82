-- The processes to nudge; see next.rs.
local is_fair = fair and fair.has_rivals
local function nudge(<<free&>>)
  local is_free, far = <<free& > 0| or >>, now + (horizon > 100000 and horizon or 100000)
  local last, rank, overdue, most = nil, 0, 0, is_fair and described > 0 and 1 or 4
  local is_any, late = is_free and is_fair, is_free and 0 or 250000 + 2 * round_trip
  -- By a unit that was not set free.
  local function is_held_up(<<cost&>>)
    if free& > 0 then cost& = 0 end
    return is_free and (<<cost& > 0| or >>) and earliest(now, <<0>>, <<cost&>>) > far
  end
  local waiting, is_next, place = common.front, {}, start
  local <<ahead&, previous&>> = <<0, 0>>
  if is_free or is_fair then
    waiting = {}
    while place < at do
      local who, deadline, bytes, _, first = unpack('<I7I7I2I7I7', padded, place)
      if bytes >= 32768 and deadline >= now and who ~= process then
        local rank, details = (who % 128 - who % 16) / 16, place + 23 + @demand
        local share = who % 2048 >= 128 and unpack('<I7', tail, place + 9 + bytes - 32768) or 1
        waiting[#waiting + 1] = { rank, is_fair and fair.leads[share * 8 + rank] or 0, first, who, deadline, details }
      end
      place = place + 16 + bytes % 32768
    end
    table.sort(waiting, common.is_before)
  end
  local own
  if described > 0 and not is_any then
    local each& = total_cost > 0 and cost& or left[1 + &]
    if not is_held_up(<<each&>>) then own = { level, is_fair and fair.leads[fair.own] or 0, left[1], process } end
  end
  offered = {}
  for i = 1, #waiting do
    local it = waiting[i]
    if own and common.is_before(own, it) or #offered == 255 then break end
    local <<each&>> = common.first_cost(it[6])
    if is_held_up(<<each&>>) then
      -- Its cost in other units is kept for it.
      ahead& = ahead& + (is_any and 0 or each&)
    else
      local without_lane = it[4] - it[4] % 2048
      local is_other = without_lane ~= last
      if is_other then rank = rank + 1 end
      local is_last = is_other and (is_free or rank == most) and <<free& <= ahead&| and >>
      -- The last one may depart if the process ahead of it is dead, and so may each that watches another.
      local opening = earliest(now, <<(is_last or not is_free) and previous& or ahead&>>, <<each&>>)
      local is_later = is_free and opening > far
      is_later = is_later or not is_free and opening == beyond and places.look(previous@place, each@place, now) --places
      if opening < overdue then opening = overdue end
      local deadline = it[5]
      if not is_later and (is_free or is_other) and deadline > opening + late then
        local soon = (opening > now and opening or now) + 120000 + 2 * round_trip
        if special >= 256 and soon < deadline then deadline = soon end
        offered[#offered + 1], is_next[it[4]] = it[4], deadline
      end
      if is_last then break end
      local <<units&>> = unpack('<@sums', tail, it[6] - @demand + 14)
      if is_other then
        last, overdue = without_lane, is_free and 0 or deadline + 60000
        previous& = ahead&
      end
      ahead& = ahead& + (is_any and 0 or units&)
    end
  end
  if special < 256 or not offered[1] then return end
  -- They count as overdue soon, as one may be dead.
  rest = rest or sub(tail, start, cuts[1][1] - 1) .. sub(tail, cuts[1][2], at - 1)
  is_same, latest, place = false, mine ~= '' and unpack('<I7', mine, 8) or 0, 1
  local slices, from = {}, 1
  while place <= #rest do
    local who, ends, bytes = unpack('<I7I7I2', rest, place)
    local soon = is_next[who]
    if soon and ends > soon then
      slices[#slices + 1], ends = sub(rest, from, place + 6) .. pack('<I7', soon), soon
      from = place + 14
    end
    if ends > latest then latest = ends end
    place = place + 16 + bytes % 32768
  end
  rest = concat(slices) .. sub(rest, from)
end
local <<free&>> = <<0>>
if returned then free& = (returned[&] or 0) > granted& and returned[&] - granted& or 0 end
if places.released > 0 then free@place = places.free() end --places
nudge(<<free&>>)
if not offered[1] and (<<free& > 0| or >>) then nudge(<<0>>) end
