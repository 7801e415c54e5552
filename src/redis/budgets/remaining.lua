-- Gives what is left, or 0.

save()
return math.max(0, left())
