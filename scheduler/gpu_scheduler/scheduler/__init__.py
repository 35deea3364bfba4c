"""`gpu-scheduler run`: watches pods, decides where they run, and binds them.

LAW: one task decides. A placement is written only while the Lease lets this replica write.
"""
