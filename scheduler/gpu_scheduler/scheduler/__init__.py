"""`gpu-scheduler run`: watches pods, decides, binds.

LAW: one task decides; a write leaves only behind the fence.
"""
