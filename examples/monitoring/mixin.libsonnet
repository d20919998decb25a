// The alerts and the dashboard as a mixin, for those who keep monitoring in jsonnet.
{
  prometheusAlerts+:: {
    groups+: std.parseYaml(importstr 'caisson.rules.yml').groups + std.parseYaml(importstr 'fleet.rules.yml').groups,
  },
  grafanaDashboards+:: {
    'caisson-nodes.json': import 'dashboard.json',
  },
}
