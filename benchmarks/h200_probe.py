import sys, faulthandler; sys.path[:0]=['python','.']
faulthandler.enable()
import torch
import regen
from examples.models import build
torch.use_deterministic_algorithms(True, warn_only=True)
name, share = sys.argv[1], float(sys.argv[2])
model,args,loss=build(name,batch=int(sys.argv[3]),device='cuda'); model.train()
o=torch.optim.SGD(model.parameters(),lr=.01,momentum=.9)
print('planning',flush=True)
step=regen.step(model,loss,o,args,budget=share,planner=sys.argv[4],time_limit=3,cache=False,debug=len(sys.argv)>5)
print(step.plan,flush=True)
for i in range(3): print(step(*args).item(),flush=True)
