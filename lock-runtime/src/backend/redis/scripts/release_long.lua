hand_over(now_us())
return 'released'
