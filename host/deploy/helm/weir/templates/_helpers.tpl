{{- /* The text of weir.toml. */ -}}
{{- define "weir.configuration" -}}
{{- .Values.configuration | default (.Files.Get "weir.toml" | replace "/run/secrets/" (printf "%s/" .Values.secretFolder)) -}}
{{- end -}}

{{- /* The service account of the pods, or nothing for the namespace's own. */ -}}
{{- define "weir.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary .Release.Name "" .Values.serviceAccount.create) -}}
{{- end -}}

{{- /* Kubernetes cannot mount the token of a service account inside the read-only folder of another volume. */ -}}
{{- define "weir.secretFolder" -}}
{{- $has := or .Values.serviceAccount.automount (include "weir.serviceAccount" .) -}}
{{- if and $has (regexMatch "^(/var)?/run(/|$)" .Values.secretFolder) -}}
{{- fail (printf "secretFolder is %s, but the token of a service account is mounted below /run/secrets: set another one, such as /etc/weir-secrets" .Values.secretFolder) -}}
{{- end -}}
{{- .Values.secretFolder -}}
{{- end -}}
