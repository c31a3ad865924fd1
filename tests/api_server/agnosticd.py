"""A play as AgnosticD v2 calls a workload; used by the tests of the role with and without an API server."""

V2 = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: trainlab.rhoai.ocp4_workload_trainlab
        apply:
          environment: "{{ environment_of_tasks }}"
"""
"""How AgnosticD v2 calls a workload: agnosticd/agnosticd-v2 aa91566, ansible/roles/openshift_workload_deployer/tasks/
run_workload_on_clusters.yml (address and token), ansible/configs/openshift-cluster/workloads.yml (a kubeconfig)."""
