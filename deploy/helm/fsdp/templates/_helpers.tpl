{{- /* Names. 40 characters leave room for "-worker-999-cuda-15", which is a worker's id (63 at most). */ -}}
{{- define "fsdp.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "fsdp.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "fsdp.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "fsdp.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What objects are selected by; never changes. Argument: {root, component}. */ -}}
{{- define "fsdp.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fsdp.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* Of objects, not of pods: with the chart's version in them, every upgrade would change every pod. */ -}}
{{- define "fsdp.labels" -}}
{{ include "fsdp.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: fsdpctl
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The label of pods that may call the coordinator. */ -}}
{{- define "fsdp.clientLabel" -}}
{{ include "fsdp.fullname" . }}-client
{{- end -}}

{{- /* The secret of one of coordinator, worker, client. Argument: {root, of}. */ -}}
{{- define "fsdp.tlsSecret" -}}
{{- default (printf "%s-%s-tls" (include "fsdp.fullname" .root) .of) (index .root.Values.tls.secrets .of) -}}
{{- end -}}

{{- /* Its volume. Keys are for the pod's group, which fsGroup makes theirs; the programs refuse them otherwise. */ -}}
{{- define "fsdp.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "fsdp.tlsSecret" . }}
    defaultMode: 0440
{{- end -}}

{{- /* Is something of it reached from other pods in the clear? Argument: root. */ -}}
{{- define "fsdp.coordinatorInTheClear" -}}
{{- if or (not .Values.tls.enabled) (not .Values.tls.metrics) -}}
true
{{- end -}}
{{- end -}}

{{- define "fsdp.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fsdp.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Argument: {root, image: {repository, digest}}. */ -}}
{{- define "fsdp.image" -}}
{{- $path := .image.repository -}}
{{- if .root.Values.image.registry -}}
{{- $path = printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) $path -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $path .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $path (default .root.Chart.AppVersion .root.Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* "16Gi" as a number of Mi; the schema admits no other units. */ -}}
{{- define "fsdp.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . -}}
{{- mul $number 1048576 -}}
{{- else if hasSuffix "Gi" . -}}
{{- mul $number 1024 -}}
{{- else -}}
{{- $number -}}
{{- end -}}
{{- end -}}

{{- /* /dev/shm is the pod's memory too. */ -}}
{{- define "fsdp.workerMemory" -}}
{{- add (include "fsdp.mebibytes" .Values.worker.memory) (include "fsdp.mebibytes" .Values.worker.shm.size) -}}Mi
{{- end -}}

{{- /* What values.schema.json cannot say. */ -}}
{{- define "fsdp.check" -}}
{{- if le (int .Values.coordinator.terminationGracePeriodSeconds) (int .Values.coordinator.drainTimeoutSeconds) -}}
{{- fail (printf "coordinator.terminationGracePeriodSeconds=%d: must be more than coordinator.drainTimeoutSeconds=%d, or the drain is cut off" (int .Values.coordinator.terminationGracePeriodSeconds) (int .Values.coordinator.drainTimeoutSeconds)) -}}
{{- end -}}
{{- if .Values.tls.certManager.enabled -}}
{{- if not .Values.tls.enabled -}}
{{- fail "tls.certManager.enabled=true: nothing would use the certificates; set tls.enabled=true too" -}}
{{- end -}}
{{- if le (trimSuffix "h" .Values.tls.certManager.duration | int) (trimSuffix "h" .Values.tls.certManager.renewBefore | int) -}}
{{- fail (printf "tls.certManager.renewBefore=%s: must be less than tls.certManager.duration=%s" .Values.tls.certManager.renewBefore .Values.tls.certManager.duration) -}}
{{- end -}}
{{- end -}}
{{- if .Values.coordinator.hardened -}}
{{- if include "fsdp.coordinatorInTheClear" . -}}
{{- fail "coordinator.hardened=true: nothing may be in the clear; set tls.enabled=true and tls.metrics=true too" -}}
{{- end -}}
{{- if not .Values.access.existingSecret -}}
{{- fail "coordinator.hardened=true: somebody must say who may do what; set access.existingSecret too" -}}
{{- end -}}
{{- if not .Values.access.auditLog -}}
{{- fail "coordinator.hardened=true: what was done must be recorded; set access.auditLog=true too" -}}
{{- end -}}
{{- if empty .Values.access.allowedPaths -}}
{{- fail "coordinator.hardened=true: jobs may not name any file; set access.allowedPaths too, such as [/shared]" -}}
{{- end -}}
{{- end -}}
{{- if .Values.worker.enabled -}}
{{- if and (eq .Values.worker.kind "DaemonSet") .Values.worker.persistence.enabled -}}
{{- fail "worker.persistence.enabled=true: a DaemonSet has no claims of its own; use worker.kind=StatefulSet, or set it to false" -}}
{{- end -}}
{{- if and .Values.access.existingSecret .Values.worker.enabled (not .Values.access.workerTokenSecret) -}}
{{- fail "access.workerTokenSecret is not set: with access.existingSecret workers need a token of the role worker, in a secret under the key token" -}}
{{- end -}}
{{- if and (or .Values.access.workerTokenSecret .Values.access.testTokenSecret) (not .Values.access.existingSecret) -}}
{{- fail "access.existingSecret is not set: tokens mean nothing to a coordinator without the file of who may do what" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.worker.hostNetwork (empty .Values.networkPolicy.workerCidrs) -}}
{{- fail "worker.hostNetwork=true: the coordinator's NetworkPolicy cannot tell such workers by their pods; give their nodes' addresses as networkPolicy.workerCidrs, or set networkPolicy.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
