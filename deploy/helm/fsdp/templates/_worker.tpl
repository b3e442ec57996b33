{{- /* The pod of workers, of StatefulSet and DaemonSet alike. */ -}}
{{- define "fsdp.workerPod" -}}
{{- $worker := .Values.worker -}}
{{- $gpu := eq $worker.devices "all" -}}
metadata:
  labels:
    {{- include "fsdp.selectorLabels" (dict "root" . "component" "worker") | nindent 4 }}
    {{- with $worker.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $worker.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "fsdp.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $worker.terminationGracePeriodSeconds }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $worker.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $worker.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- if $worker.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  securityContext:
    {{- toYaml $worker.podSecurityContext | nindent 4 }}
  containers:
    - name: worker
      image: {{ include "fsdp.image" (dict "root" . "image" $worker.image) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      # A worker keeps its name over the pod's restarts, so that the coordinator knows it again.
      args:
        - --coordinator={{ include "fsdp.fullname" . }}-coordinator.{{ .Release.Namespace }}.svc:{{ .Values.coordinator.service.port }}
        - --state-dir=/var/lib/fsdp-worker
        - --devices={{ $worker.devices }}
        - --name=$({{ if eq $worker.kind "DaemonSet" }}NODE_NAME{{ else }}POD_NAME{{ end }})
        {{- if $worker.networkInterface }}
        - --interface={{ $worker.networkInterface }}
        {{- else if $worker.jobNetwork }}
        - --job-network={{ $worker.jobNetwork }}
        {{- else }}
        - --bind-address=$(POD_IP)
        {{- end }}
        - --metrics-listen={{ ternary "[$(POD_IP)]" "$(POD_IP)" (eq .Values.ipFamily "IPv6") }}:{{ $worker.metricsPort }}
        {{- if .Values.tls.enabled }}
        - --tls-ca=/etc/fsdp/tls/ca.crt
        - --tls-certificate=/etc/fsdp/tls/tls.crt
        - --tls-key=/etc/fsdp/tls/tls.key
        {{- end }}
        {{- if and .Values.tls.enabled .Values.tls.metrics }}
        - --metrics-tls-certificate=/etc/fsdp/tls/tls.crt
        - --metrics-tls-key=/etc/fsdp/tls/tls.key
        {{- else }}
        # For the metrics, which Prometheus must reach.
        - --insecure
        {{- end }}
        - --cpu-threads={{ $worker.cpuThreads }}
        - --spool-bytes={{ $worker.spoolBytes | int64 }}
        {{- if .Values.access.workerTokenSecret }}
        - --token-file=/etc/fsdp-token/token
        {{- end }}
        {{- range .Values.access.allowedPaths }}
        - --allow-path={{ . }}
        {{- end }}
        {{- range $worker.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        # For the caches of libraries; the root file system is read-only.
        - name: HOME
          value: /var/lib/fsdp-worker
        {{- with $worker.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: metrics, containerPort: {{ $worker.metricsPort }}, protocol: TCP}
      readinessProbe:
        httpGet: {path: /metrics, port: metrics{{ if and .Values.tls.enabled .Values.tls.metrics }}, scheme: HTTPS{{ end }}}
        {{- toYaml $worker.readinessProbe | nindent 8 }}
      resources:
        {{- include "fsdp.workerResources" . | nindent 8 }}
      securityContext:
        {{- $context := deepCopy $worker.containerSecurityContext }}
        {{- if $worker.rdma.enabled }}
        {{- $capabilities := default dict $context.capabilities }}
        {{- $_ := set $capabilities "add" (append (default list $capabilities.add) "IPC_LOCK" | uniq) }}
        {{- $_ := set $context "capabilities" $capabilities }}
        {{- end }}
        {{- toYaml $context | nindent 8 }}
      volumeMounts:
        - {name: state, mountPath: /var/lib/fsdp-worker}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        {{- if .Values.access.workerTokenSecret }}
        - {name: token, mountPath: /etc/fsdp-token, readOnly: true}
        {{- end }}
        {{- if .Values.tls.enabled }}
        - {name: tls, mountPath: /etc/fsdp/tls, readOnly: true}
        {{- end }}
        {{- if .Values.sharedVolume.existingClaim }}
        - {name: shared, mountPath: {{ .Values.sharedVolume.mountPath }}}
        {{- end }}
        {{- with $worker.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $worker.shm.size }}}
    - name: tmp
      emptyDir: {}
    {{- with .Values.access.workerTokenSecret }}
    - name: token
      secret: {secretName: {{ . }}}
    {{- end }}
    {{- if .Values.tls.enabled }}
    {{- include "fsdp.tlsVolume" (dict "root" . "of" "worker") | nindent 4 }}
    {{- end }}
    {{- if not $worker.persistence.enabled }}
    - name: state
      emptyDir: {sizeLimit: {{ $worker.persistence.size }}}
    {{- end }}
    {{- with .Values.sharedVolume.existingClaim }}
    - name: shared
      persistentVolumeClaim: {claimName: {{ . }}}
    {{- end }}
    {{- with $worker.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $worker.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $gpu }}
  {{- with $worker.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $worker.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $worker.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* Extended resources and memory: request and limit are the same. */ -}}
{{- define "fsdp.workerResources" -}}
{{- $worker := .Values.worker -}}
{{- $both := dict "memory" (include "fsdp.workerMemory" .) -}}
{{- if eq $worker.devices "all" -}}
{{- $_ := set $both $worker.gpuResourceName (int $worker.gpus) -}}
{{- end -}}
{{- if $worker.rdma.enabled -}}
{{- $_ := set $both $worker.rdma.resourceName (int $worker.rdma.count) -}}
{{- end -}}
{{- $both = merge $both $worker.extraResources -}}
{{- $limits := deepCopy $both -}}
{{- if $worker.cpu.limit -}}
{{- $_ := set $limits "cpu" ($worker.cpu.limit | toString) -}}
{{- end -}}
{{- toYaml (dict "requests" (set $both "cpu" ($worker.cpu.request | toString)) "limits" $limits) -}}
{{- end -}}
