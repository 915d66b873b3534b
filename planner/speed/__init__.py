"""How fast a deployment is: ideal times, fitted efficiencies, calibration on the deployment's own signals, cases."""
