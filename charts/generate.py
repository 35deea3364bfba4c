"""Writes the templates of both charts from the roles' templates: `python -m charts.generate` (part of `make fmt`).

A table says which value of the chart each input of a role is. Values, schema, helpers and notes are written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from charts.expressions import Expression
from charts.role_templates import ROLES, rendered

CHARTS: Final = Path(__file__).resolve().parent
MADE: Final = "{{- /* Made by `make fmt` from {source}: change it there. */ -}}\n"


def value(path: str) -> Expression:
    """Return a value of the chart."""
    return Expression(f"$.Values.{path}")


@dataclass(frozen=True, slots=True)
class Template:
    """A template of a chart: where it comes from, its role's inputs, and the condition under which it makes objects."""

    role: str
    name: str
    inputs: dict[str, object]
    condition: str = ""

    @property
    def file(self) -> str:
        """The file's name in the chart, without its extension."""
        return f"{self.role}-{self.name}".replace("/", "-").replace("_", "-")

    def text(self) -> str:
        """Return the template as Helm reads it."""
        made = MADE.replace("{source}", f"roles/{self.role}/templates/{self.name}.yaml.j2")
        body = rendered(self.role, f"{self.name}.yaml.j2", self.inputs)
        return (
            f"{made}{{{{- if {self.condition} }}}}\n{body}\n{{{{- end }}}}\n" if self.condition else f"{made}{body}\n"
        )


# With a kind all objects of it would be deleted.
KEPT: Final = (
    "kind: CustomResourceDefinition\nmetadata:\n",
    "kind: CustomResourceDefinition\nmetadata:\n  annotations: {helm.sh/resource-policy: keep}\n",
)
NAMESPACE: Final = Expression("$.Release.Namespace")
IMAGE: Final = Expression('include "gpu-scheduler.image" $')
SCHEDULER_NAME: Final = value("scheduler.name")
OPENSHIFT: Final = value("openshift")
ISOLATION: Final = value("isolation.mode")
DRIVERS: Final = '(and (eq $.Values.isolation.mode "dra") (ne $.Values.monitor.source "none"))'
OPTIONS: Final = {
    "image_pull_policy": value("image.pullPolicy"),
    "image_pull_secrets": Expression('(include "gpu-scheduler.pullSecrets" $ | fromJsonArray)'),
    "node_selector": value("nodeSelector"),
    "tolerations": value("tolerations"),
    "affinity": value("affinity"),
    "priority_class": value("priorityClassName"),
    "resources": value("resources"),
}
COMMON: Final = {
    "_common_manager": Expression("$.Release.Service"),
    "_common_pod_options": OPTIONS,
    "_common_openshift": OPENSHIFT,
}
SCHEDULER: Final = COMMON | {
    "scheduler_namespace": NAMESPACE,
    "scheduler_image": IMAGE,
    "scheduler_name": SCHEDULER_NAME,
    "scheduler_replicas": value("scheduler.replicas"),
    "scheduler_log_level": value("scheduler.logLevel"),
    "scheduler_interval": value("scheduler.interval"),
    "scheduler_sharing": value("scheduler.sharing"),
    "scheduler_isolation": ISOLATION,
    "scheduler_strategy": value("scheduler.strategy"),
    "scheduler_utilization_goal": value("scheduler.utilizationGoal"),
    "scheduler_limits": value("scheduler.limits"),
}
WEBHOOK: Final = COMMON | {
    "webhook_namespace": NAMESPACE,
    "webhook_image": IMAGE,
    "webhook_scheduler_name": SCHEDULER_NAME,
    "webhook_replicas": value("webhook.replicas"),
    "webhook_log_level": value("webhook.logLevel"),
    "webhook_failure_policy": value("webhook.failurePolicy"),
    "webhook_timeout": value("webhook.timeoutSeconds"),
    "webhook_isolation": ISOLATION,
    "webhook_isolation_namespaces": value("isolation.namespaces"),
    "webhook_client_ca": value("webhook.clientCA"),
    "webhook_port": value("webhook.port"),
    "webhook_http_port": value("webhook.httpPort"),
    "webhook_host_network": value("webhook.hostNetwork"),
    "webhook_openshift": OPENSHIFT,
    "_webhook_ca_bundle": value("webhook.caBundle"),
}
CERTIFICATES: Final = COMMON | {
    "certificates_namespace": NAMESPACE,
    "certificates_image": IMAGE,
    "certificates_ca_days": value("certificates.caDays"),
    "certificates_serving_days": value("certificates.servingDays"),
    "certificates_renew_days": value("certificates.renewDays"),
    "certificates_renew_schedule": value("certificates.renewSchedule"),
}
HOOKS: Final = {
    "helm.sh/hook-weight": "-5",
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
}
BEFORE: Final = "pre-install,pre-upgrade"
AFTER: Final = "post-install,post-upgrade"
# The Secrets first: the webhook's replicas wait for them, and `helm install --wait` waits for the replicas before the
# second hook.
ISSUING: Final = CERTIFICATES | {
    "_certificates_issuing": {
        "annotations": HOOKS | {"helm.sh/hook": f"{BEFORE},{AFTER}"},
        "jobs": [
            {
                "name": "gpu-scheduler-issuer-secrets",
                "arguments": ["issue", "--secrets-only"],
                "annotations": HOOKS | {"helm.sh/hook": BEFORE, "helm.sh/hook-weight": "0"},
            },
            {
                "name": "gpu-scheduler-issuer",
                "arguments": ["issue"],
                "annotations": HOOKS | {"helm.sh/hook": AFTER, "helm.sh/hook-weight": "0"},
            },
        ],
    }
}
POLICIES: Final = COMMON | {
    "policies_namespace": NAMESPACE,
    "policies_scheduler_name": SCHEDULER_NAME,
    "policies_scheduler_users": value("policies.schedulerUsers"),
    "policies_monitor_namespace": value("monitor.namespace"),
    "policies_driver_namespace": Expression(f'(ternary $.Values.driver.namespace "" {DRIVERS})'),
    "policies_isolation": ISOLATION,
    "policies_protected_namespaces": value("policies.protectedNamespaces"),
    "policies_forced_deletion": value("policies.forcedDeletion"),
}
CONTROLLER: Final = COMMON | {
    "controller_namespace": NAMESPACE,
    "controller_image": IMAGE,
    "controller_scheduler_name": SCHEDULER_NAME,
    "controller_replicas": value("controller.replicas"),
    "controller_log_level": value("controller.logLevel"),
}
MONITOR: Final = COMMON | {
    "_common_pod_options": OPTIONS | {"tolerations": []},
    "monitor_namespace": value("monitor.namespace"),
    "monitor_scheduler_namespace": NAMESPACE,
    "monitor_image": IMAGE,
    "monitor_source": value("monitor.source"),
    "monitor_interval": value("monitor.interval"),
    "monitor_log_level": value("monitor.logLevel"),
    "monitor_utilization_goal": value("scheduler.utilizationGoal"),
    "monitor_runtime_class": value("monitor.runtimeClass"),
    "monitor_driver_dir": value("monitor.driverDir"),
    "monitor_simulated_inventory": value("monitor.simulatedInventory"),
}
DRIVER: Final = COMMON | {
    "_common_pod_options": OPTIONS | {"tolerations": []},
    "driver_namespace": value("driver.namespace"),
    "driver_image": IMAGE,
    "driver_source": Expression('(ternary "simulated" "nvidia" (eq $.Values.monitor.source "simulated"))'),
    "driver_kubelet_dir": value("driver.kubeletDir"),
    "driver_log_level": value("driver.logLevel"),
}
OBSERVABILITY: Final = COMMON | {
    "observability_namespace": NAMESPACE,
    "observability_monitor_namespace": value("monitor.namespace"),
    "observability_driver_namespace": value("driver.namespace"),
    "observability_with_drivers": Expression(DRIVERS),
    "observability_labels": value("observability.labels"),
    "observability_board_labels": value("observability.boardLabels"),
    "observability_scrape_interval": value("observability.scrapeInterval"),
    "observability_docs_url": value("observability.docsURL"),
    "observability_longest_wait": value("observability.longestWait"),
    "observability_hottest": value("observability.hottest"),
    "observability_highest_power": value("observability.highestPower"),
    "observability_certificate_days": value("observability.certificateDays"),
    "observability_receiver": value("observability.receiver"),
    "observability_webhook": value("webhook.enabled"),
}
NETWORK_POLICIES: Final = COMMON | {
    "network_policies_namespace": NAMESPACE,
    "network_policies_monitor_namespace": value("monitor.namespace"),
    "network_policies_driver_namespace": value("driver.namespace"),
    "network_policies_api_server_cidrs": value("networkPolicies.apiServerCidrs"),
    "network_policies_api_server_ports": value("networkPolicies.apiServerPorts"),
    "network_policies_scraping_namespaces": value("networkPolicies.scrapingNamespaces"),
}
CHECK: Final = {
    "_check_manager": Expression("$.Release.Service"),
    "_check_workload": Expression('(ternary "StatefulSet" "Deployment" $.Values.statefulSet.enabled)'),
    "_check_service": value("statefulSet.serviceName"),
    "_check_management": value("statefulSet.podManagementPolicy"),
    "_check_replicas": Expression('include "gpu-scheduler.checkReplicas" $'),
    "_check_annotations": Expression(
        "(merge (deepCopy $.Values.podAnnotations) "
        '(ternary (dict "agentaflow.gpu/observer" "true") (dict) $.Values.observer))'
    ),
    "_check_pull_secrets": value("imagePullSecrets"),
    "_check_rights_namespaces": [NAMESPACE],
    "_check_user": Expression('(ternary (dict) (dict "runAsUser" 1000 "runAsGroup" 1000) $.Values.openshift)'),
    "check_namespace": NAMESPACE,
    "check_image": IMAGE,
    "check_image_pull_policy": value("image.pullPolicy"),
    "check_scheduler_name": SCHEDULER_NAME,
    "check_interval": value("interval"),
    "check_tolerations": value("tolerations"),
    "check_openshift": OPENSHIFT,
}

WITH_WEBHOOK: Final = "$.Values.webhook.enabled"
WITH_ISSUER: Final = "and $.Values.webhook.enabled (not $.Values.webhook.caBundle)"
WITH_POLICY: Final = "and $.Values.injectionPolicy.enabled (not $.Values.webhook.enabled)"
WITH_MONITOR: Final = 'ne $.Values.monitor.source "none"'
WITH_OBSERVABILITY: Final = (
    'or (eq $.Values.observability.mode "always") '
    '(and (eq $.Values.observability.mode "auto") ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1"))'
)
WITH_RECEIVER: Final = f'and (ne $.Values.observability.receiver "none") ({WITH_OBSERVABILITY})'
WITH_NETWORK_POLICIES: Final = "$.Values.networkPolicies.enabled"
WITH_MONITOR_NETWORK_POLICIES: Final = f"and {WITH_NETWORK_POLICIES} ({WITH_MONITOR})"
WITH_DRIVER_NETWORK_POLICIES: Final = f"and {WITH_NETWORK_POLICIES} {DRIVERS}"
WITH_SIMULATED: Final = 'eq $.Values.monitor.source "simulated"'

TEMPLATES: Final = {
    "gpu-scheduler": (
        Template("certificates", "quota", CERTIFICATES, 'ne $.Release.Namespace "kube-system"'),
        Template("certificates", "rbac", CERTIFICATES, WITH_WEBHOOK),
        Template("certificates", "renewer", CERTIFICATES, WITH_WEBHOOK),
        Template("certificates", "issuing/job", ISSUING, WITH_ISSUER),
        Template("scheduler", "rbac", SCHEDULER),
        Template("scheduler", "settings", SCHEDULER),
        Template("scheduler", "limits", SCHEDULER, "$.Values.scheduler.limits"),
        Template("scheduler", "service", SCHEDULER),
        Template("scheduler", "deployment", SCHEDULER),
        Template("policies", "accounts", POLICIES),
        Template("policies", "guards", POLICIES),
        Template("policies", "rights", POLICIES),
        Template("policies", "claims", POLICIES, f'eq {ISOLATION.code} "dra"'),
        Template("policies", "injection", POLICIES, WITH_POLICY),
        Template("policies", "environment", POLICIES, WITH_POLICY),
        Template("monitor", "namespace", MONITOR, WITH_MONITOR),
        Template("monitor", "rbac", MONITOR, WITH_MONITOR),
        Template("monitor", "quota", MONITOR, WITH_MONITOR),
        Template("monitor", "inventory", MONITOR, WITH_SIMULATED),
        Template("monitor", "daemonset", MONITOR, WITH_MONITOR),
        Template("driver", "namespace", DRIVER, DRIVERS),
        Template("driver", "rbac", DRIVER, DRIVERS),
        Template("driver", "quota", DRIVER, DRIVERS),
        Template("driver", "class", DRIVER, DRIVERS),
        Template("driver", "policy", DRIVER, DRIVERS),
        Template("driver", "daemonset", DRIVER, DRIVERS),
        Template("network_policies", "system", NETWORK_POLICIES, WITH_NETWORK_POLICIES),
        Template("network_policies", "monitor", NETWORK_POLICIES, WITH_MONITOR_NETWORK_POLICIES),
        Template("network_policies", "driver", NETWORK_POLICIES, WITH_DRIVER_NETWORK_POLICIES),
        Template("webhook", "service", WEBHOOK, WITH_WEBHOOK),
        Template("webhook", "deployment", WEBHOOK, WITH_WEBHOOK),
        Template("webhook", "registrations", WEBHOOK, WITH_WEBHOOK),
        Template("controller", "rbac", CONTROLLER),
        Template("controller", "deployment", CONTROLLER),
        Template("observability", "scrapes", OBSERVABILITY, WITH_OBSERVABILITY),
        Template("observability", "rules", OBSERVABILITY, WITH_OBSERVABILITY),
        Template("observability", "boards", OBSERVABILITY, WITH_OBSERVABILITY),
        Template("observability", "receivers", OBSERVABILITY, WITH_RECEIVER),
    ),
    "gpu-scheduler-check": (
        Template("check", "rights", CHECK),
        Template("check", "statefulset", CHECK),
    ),
}


def files() -> dict[Path, str]:
    """Return each file that is made, with its text."""
    made = {
        CHARTS / chart / "templates" / f"{template.file}.yaml": template.text()
        for chart, templates in TEMPLATES.items()
        for template in templates
    }
    for kind in ("gpuworkloads", "gpunodes", "rights"):
        source = f"roles/crds/files/{kind}.yaml"
        text = MADE.replace("{source}", source) + (ROLES.parent / source).read_text(encoding="utf-8")
        made[CHARTS / "gpu-scheduler" / "templates" / f"crds-{kind}.yaml"] = text.replace(*KEPT)
    return made


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
