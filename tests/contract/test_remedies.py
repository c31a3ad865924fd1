"""Every command and variable that a message, a page or NOTES prints has a test that runs it, or a reason why none does.

What is printed is collected from the sources (tests/api_server/remedies.py). A new one fails here until it is in the tables,
one that nobody prints any more until it is out of them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from api_server import remedies

ROOT = Path(__file__).resolve().parents[2]
OPENSHIFT = "oc on OpenShift, which no test has; that it is printed for its failure is tested"
BUILDS = f"{OPENSHIFT} (tests/api/test_image.py)"
FOR_EVER = "follows, forwards a port or opens an editor until a person ends it"
POD = "there is no kubelet on the test API server; that the chart names this pod is tested (tests/charts/test_notes.py)"
SETUP = "installs or builds for minutes; every machine of tests/fresh starts with it"
UNDERSTOOD = "tests/api/test_rights.py::test_printed_commands_work_as_they_stand"
RIGHTS = "tests/api/test_rights.py::test_the_commands_that_it_prints_give_the_rights"
LIVE = "tests/api/test_live.py::test_life_of_a_release"
DEMO = "tests/e2e/test_demo.py::test_an_attendee_trains_a_trainjob_and_leaves_only_the_volumes"
LESSON = "training/tests/run/test_lesson.py::test_each_step_that_is_missing_is_said_with_what_to_do"
STAGED = "training/tests/recipes/pretrain/test_staged.py::test_all_stages_one_after_the_other"
PREPARED = "training/tests/data/test_prepare_input.py::test_options_and_folders_that_do_not_fit"
ROOM = "tests/e2e/test_demo_room.py::test_a_round_outlives_the_room_and_a_worker"
TWO_REVISIONS = "tests/api/test_prepare.py::test_two_revisions_of_who_may_only_edit_the_namespace"
NOTHING_TO_COMPARE = "tests/plugins/test_playbooks.py::test_one_value_is_nothing_to_compare"
REGISTRY = "oc patch configs.imageregistry.operator.openshift.io cluster --type merge -p "

COMMANDS = {
    "ansible-playbook -i YOUR_INVENTORY playbooks/image.yml -e image_site_file=artifacts/site.yaml": (
        "tests/api/test_image.py::test_checkout_is_sent_built_and_its_digest_written"
    ),
    "ansible-playbook {} -e attendees_state=absent": (
        "tests/api/test_attendees.py::test_two_attendees_from_nothing_to_nothing"
    ),
    "ansible-playbook {}": "tests/e2e/test_demo.py::test_second_run_changes_nothing",
    "helm -n {} status {}": UNDERSTOOD,
    "helm get values {} -n {} -a -o yaml | trainlab plan -": (
        "tests/charts/test_notes.py::test_the_plan_of_a_release_is_that_of_its_files"
    ),
    "helm install {} charts/trainjob": DEMO,
    "helm install {} trainjob --repo {} -f {}/{}.yaml": (
        "tests/api/test_sheet.py::test_the_two_lines_of_the_sheet_train"
    ),
    "helm template": "the name of a command in a sentence about where it is used",
    "helm template {} {}": ROOM,
    "helm test {} -n {}": "tests/e2e/test_demo.py::test_helm_test_passes",
    "helm uninstall {} -n {}": LIVE,
    "helm upgrade {} CHART -n {} --reuse-values --set site.step=train": TWO_REVISIONS,
    "helm upgrade --install {} {}": "tests/api/test_release.py::test_what_began_badly_is_repaired_by_another_run",
    "kubectl -n {} create secret docker-registry {} ...": "... stands for a registry's address, user and password",
    "kubectl -n {} create secret generic {} --from-file=token=FILE": UNDERSTOOD,
    "kubectl -n {} create secret generic {} --from-literal=VARIABLE=VALUE": UNDERSTOOD,
    "kubectl -n {} create serviceaccount {}": UNDERSTOOD,
    "kubectl -n {} delete --ignore-not-found pod/{}-test": "its line with volumes is run, in tests/api/test_live.py",
    "kubectl -n {} delete --ignore-not-found pod/{}-test{} pvc/{}{}": LIVE,
    "kubectl -n {} delete job {}": TWO_REVISIONS,
    "kubectl -n {} delete job {} && helm rollback {} {} -n {}": (
        "tests/e2e/test_demo_release.py::test_a_lease_ends_and_the_printed_line_begins_another"
    ),
    "kubectl -n {} delete localqueue default": UNDERSTOOD,
    "kubectl -n {} delete secret": "tests/api/test_release.py::test_what_began_badly_is_repaired_by_another_run",
    "kubectl -n {} delete {},jobs,configmaps -l app.kubernetes.io/instance={},app.kubernetes.io/component=run": (
        "tests/api/test_served.py::test_a_served_model_is_replaced_only_by_a_promoted_one"
    ),
    "kubectl -n {} delete {}{},job{} -l {}/run={} && helm rollback {} {} -n {}": LIVE,
    "kubectl -n {} describe deployments,pods": UNDERSTOOD,
    "kubectl -n {} describe inferenceservice {}": UNDERSTOOD,
    "kubectl -n {} describe pod {}": UNDERSTOOD,
    "kubectl -n {} describe pods": UNDERSTOOD,
    "kubectl -n {} describe pvc {}": UNDERSTOOD,
    "kubectl -n {} describe {} {}": UNDERSTOOD,
    "kubectl -n {} edit configmap inferenceservice-config": FOR_EVER,
    "kubectl -n {} get inferenceservice {} -o jsonpath='{.metadata.annotations.{}/served-until}'": UNDERSTOOD,
    "kubectl -n {} get pod -l {}/run={},batch.kubernetes.io/job-completion-index=0 -o name)": (
        "tests/charts/test_notes.py::test_of_several_pods_the_notes_name_the_first"
    ),
    "kubectl -n {} get pods": UNDERSTOOD,
    "kubectl -n {} get pods -l app.kubernetes.io/name={} -o wide": UNDERSTOOD,
    "kubectl -n {} get pods -l {}/run={} -o wide -w": FOR_EVER,
    "kubectl -n {} get pods,events": UNDERSTOOD,
    "kubectl -n {} get secret {}": ROOM,
    "kubectl -n {} get route {} -o jsonpath='{.spec.host}')": OPENSHIFT,
    "kubectl -n {} logs -f job/{}": POD,
    "kubectl -n {} logs -f {}": POD,
    "kubectl -n {} logs -l app.kubernetes.io/component=promote,{}={}": UNDERSTOOD,
    "kubectl -n {} logs -l serving.kserve.io/inferenceservice={}": UNDERSTOOD,
    "kubectl -n {} port-forward deployment/{} 8090:8080 --address 0.0.0.0": FOR_EVER,
    "kubectl -n {} port-forward deployment/{} 6006:8080": FOR_EVER,
    "kubectl -n {} port-forward deployment/{}-predictor 8080": FOR_EVER,
    "kubectl -n {} port-forward {} {}": FOR_EVER,
    "kubectl -n {} wait --for=condition=Complete --timeout=24h job/{}": TWO_REVISIONS,
    "kubectl cordon {}": UNDERSTOOD,
    "kubectl create namespace {}": UNDERSTOOD,
    "kubectl describe nodes": UNDERSTOOD,
    "kubectl get --raw /version": UNDERSTOOD,
    "kubectl get clusterqueues": UNDERSTOOD,
    "kubectl get namespace kube-system -o jsonpath={.metadata.uid}": UNDERSTOOD,
    "kubectl get workloads -A": UNDERSTOOD,
    "kubectl label namespace {} pod-security.kubernetes.io/enforce=restricted": UNDERSTOOD,
    "kubectl role trainlab --verb=* --resource={}": RIGHTS,
    "kubectl rolebinding trainlab --role=trainlab {}": RIGHTS,
    "kubectl rolebinding trainlab-admin --clusterrole=admin {}": RIGHTS,
    "make binaries": SETUP,
    "make gen": "tests/contract/test_chart_files.py::test_schema_keys_and_table_are_up_to_date",
    "make lock": "needs a package index and rewrites the lock files, which change with the day",
    "make programs": "builds every program for half an hour; what it writes is tests/cluster/test_prebuilt.py's",
    "make venv": "tests/cluster/test_without_torch.py::test_blocks_of_commands_work_in_a_fresh_shell",
    "make venv-dev": SETUP,
    "oc -n nvidia-gpu-operator get pods": OPENSHIFT,
    "oc -n openshift-nfd get installplans": OPENSHIFT,
    "oc -n openshift-monitoring edit configmap cluster-monitoring-config": FOR_EVER,
    "oc -n redhat-ods-applications get pods": OPENSHIFT,
    "oc -n redhat-ods-operator edit configmap odh-upgrade-acks": (
        "tests/api/test_platform.py::test_from_a_release_and_a_channel_to_the_next"
    ),
    "oc -n {} describe imagestream {}": BUILDS,
    "oc -n {} describe subscriptions.operators.coreos.com,installplans,clusterserviceversions": OPENSHIFT,
    "oc -n {} get rolebindings": OPENSHIFT,
    "oc -n {} logs build/{}": BUILDS,
    "oc debug node/{} -- chroot /host chronyc tracking": OPENSHIFT,
    "oc describe datasciencecluster": OPENSHIFT,
    "oc edit kueue cluster": FOR_EVER,
    "oc get configs.imageregistry.operator.openshift.io cluster -o yaml": OPENSHIFT,
    "oc get packagemanifests -n openshift-marketplace": OPENSHIFT,
    "oc get project {}": OPENSHIFT,
    "oc get {} {}": OPENSHIFT,
    "oc label namespace {} {}": OPENSHIFT,
    "oc new-project {}": OPENSHIFT,
    "oc patch usernamespaceconfig default --type=json -p '{}'": OPENSHIFT,
    "oc patch {} {} --type merge -p '{}'": "tests/api/test_upgrades.py::test_from_2_25_to_3_6",
    REGISTRY + """'{"spec": {"managementState": "Managed\"""": OPENSHIFT,
    REGISTRY + """'{"spec": {"managementState": "Managed"}}'""": OPENSHIFT,
    "oc {}describe {} {}": OPENSHIFT,
    "trainlab check": "the name of the program in a sentence about how it ended",
    "trainlab eval RUN_DIR --models DIR": STAGED,
    "trainlab fetch": "training/tests/data/test_datasets.py::test_the_command_fetches_images_from_there",
    "trainlab gate {}": STAGED,
    "trainlab gate {} --override --who NAME --why REASON": STAGED,
    "trainlab lesson {}": LESSON,
    "trainlab lesson {} --predict {}": LESSON,
    "trainlab plan": "training/tests/plan/test_told_numbers.py::test_numbers_next_to_a_plan_are_the_plans",
    "trainlab plan {}": "tests/plugins/test_playbooks.py::test_printed_files_are_quoted",
    "trainlab prepare": PREPARED,
    "trainlab prepare --out {}": PREPARED,
    "trainlab questions": "training/tests/data/test_own_questions.py::test_a_table_becomes_a_data_set_that_trains",
    "trainlab serve": "tests/e2e/test_alone.py::test_it_trains_serves_and_answers_what_it_prints",
}
"""The test that runs it, as FILE::TEST, or the reason why none does."""

VARIABLES = {
    "room_state": "tests/e2e/test_demo_room.py::test_it_is_removed_with_its_jobs",
    "attendees_state": "tests/api/test_attendees.py::test_two_attendees_from_nothing_to_nothing",
    "attendees_end": "tests/api/test_attendees.py::test_shared_models_and_image",
    "image_prepull": "tests/api/test_prepull.py::test_images_are_on_the_nodes_before_anything_else",
    "image_site_file": "tests/api/test_image.py::test_checkout_is_sent_built_and_its_digest_written",
    "image_tracking": "tests/api/test_image.py::test_checkout_is_sent_built_and_its_digest_written",
    "key": NOTHING_TO_COMPARE,
    "nodes": NOTHING_TO_COMPARE,
    "values": NOTHING_TO_COMPARE,
    "phase": "tests/plugins/test_playbooks.py::test_an_image_classifier_is_planned_too",
    "train_again": "tests/api/test_release.py::test_a_job_that_waits_for_ever_is_removed_on_request",
    "train_plan": "tests/plugins/test_playbooks.py::test_a_refusal_can_be_overruled",
    "trainlab_image_push": "tests/e2e/test_kubernetes.py::test_from_a_cluster_to_a_served_model_and_back",
    "trainlab_image_source": "tests/api/test_image.py::test_checkout_is_sent_built_and_its_digest_written",
    "trainlab_namespace": "tests/api/test_image.py::test_checkout_is_sent_built_and_its_digest_written",
    "trainlab_release": "tests/api/test_release.py::test_trained_as_a_workload_and_torn_down",
    "trainlab_platform_release": "tests/api/test_platform.py::test_from_a_release_and_a_channel_to_the_next",
    "teardown_volumes": "tests/api/test_connections.py::test_trained_by_a_credential_and_removed_from_a_pod",
}
"""The test that sets it, in the same form."""


def test_every_printed_command_is_run_or_has_a_reason() -> None:
    found = remedies.commands()
    assert {command: file for command, file in found.items() if command not in COMMANDS} == {}, "new"
    assert set(COMMANDS) - set(found) == set(), "printed by nobody any more"


def test_every_printed_variable_is_set_by_a_test() -> None:
    found = remedies.variables()
    assert {name: file for name, file in found.items() if name not in VARIABLES} == {}, "new"
    assert set(VARIABLES) - set(found) == set(), "printed by nobody any more"
    for name, where in VARIABLES.items():
        assert name in (ROOT / where.partition("::")[0]).read_text(encoding="utf-8"), f"{where} does not mention {name}"


def test_the_tests_that_are_named_exist() -> None:
    named = [where for where in (*COMMANDS.values(), *VARIABLES.values()) if re.match(r"[\w/]+\.py\b", where)]
    assert len(named) > len(VARIABLES)
    for where in named:
        file, _, test = where.partition("::")
        assert (ROOT / file).is_file(), where
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert test in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, where


def test_what_is_said_to_work_as_it_stands_is_run_so() -> None:
    """The test on the API server has exactly these commands."""
    assert {command for command, where in COMMANDS.items() if where == UNDERSTOOD} == set(remedies.RUN)


def test_a_command_in_a_message_is_found(tmp_path: Path) -> None:
    """In backticks, without them, in NOTES; not in a docstring or a comment."""
    source = '"""`kubectl get nothing`."""\nsay = f"see {api.kubectl} -n {n} get pods, or `{api.oc} get x`; set it"\n'
    texts = list(remedies._strings(ast.parse(source)))
    assert [command for text in texts for command in remedies._commands(text)] == ["oc get x", "kubectl -n {} get pods"]
    page = "{{/* `helm get x` */}}\n# `helm get x`\nWatch:\n  kubectl -n {{ $n }} logs {{ $job }}   # then\n"
    found = [command for text in remedies._template(page) for command in remedies._commands(text)]
    assert found == ["kubectl -n {} logs {}"]
    assert re.search("{}", found[0])
