{{- /* The text of weir.toml. */ -}}
{{- define "weir.configuration" -}}
{{- .Values.configuration | default (.Files.Get "weir.toml") -}}
{{- end -}}
