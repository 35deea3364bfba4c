cd gpu-scheduler
python3 scheduler.py
