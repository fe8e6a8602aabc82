-- Leaves out the processes whose next request cannot depart within the horizon because of a unit in which this demand
-- costs nothing; see State::others. Only if there are several units.

if live > 0 then
  local kept, finish = 0, now + horizon
  if opens > finish then finish = opens end
  local mine& = count > 0 and points[(count - 1) * @step + 1 + &] or 0
  for j = 1, live do
    local <<first&>>, described = unpack('<@costsB', tail, detail[j] + 7)
    if <<first& == 0| and >> then
      if described > 1 then
        <<first&>> = unpack('<@sums', tail, detail[j] + @detail + 7)
      else
        first& = waiting&[j]
      end
    end
    if mine& > 0 then first& = 0 end
    if <<first& == 0| and >> or earliest(now, <<0>>, <<first&>>) <= finish then
      kept = kept + 1
      processes[kept], deadlines[kept], oldest[kept] = processes[j], deadlines[j], oldest[j]
      newest[kept], detail[kept], <<waiting&[kept]>> = newest[j], detail[j], <<waiting&[j]>>
    end
  end
  live = kept
end
