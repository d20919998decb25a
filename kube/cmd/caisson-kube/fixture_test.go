// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/caisson-os/caisson/kube/drain"
)

func drainPolicy(timeout time.Duration) drain.Policy {
	return drain.Policy{Timeout: timeout, Grace: 0}
}

// pods are one of a DaemonSet and one of a ReplicaSet, on n1.
const pods = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default, uid: 11111111-1111-1111-1111-111111111111}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: x}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: agent
  namespace: default
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: 11111111-1111-1111-1111-111111111111, controller: true}]
spec: {nodeName: n1, containers: [{name: c, image: x}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: 22222222-2222-2222-2222-222222222222, controller: true}]
spec: {nodeName: n1, terminationGracePeriodSeconds: 0, containers: [{name: c, image: x}]}
`

// everyKind has an object of each kind of a site.
const everyKind = `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal-a}
registry: REGISTRY
nodes: [{name: n1}, {name: n2}, {name: n3}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: all}
spec: {}
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, opens: [{weekly: [sat], at: "22:00"}], duration: 4h}
---
apiVersion: caisson.dev/v1alpha1
kind: OperationTemplate
metadata: {name: trim}
spec:
  version: "1"
  operation: {type: oneShot, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: trim}
spec:
  nodes: [all]
  windows: [night]
  operations: [{name: trim, template: {name: trim, version: "1"}}]
---
apiVersion: caisson.dev/v1alpha1
kind: Rollout
metadata: {name: racks}
spec: {waves: [{percent: 100}]}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: dns}
spec:
  git: {url: https://git.example.org/dns, branch: main}
  directories: [{from: zones, to: /srv/zones}]
`
