// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetrics: a Site that is gone leaves no row behind.
func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m, err := newMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newMetrics(r); err == nil {
		t.Error("they are registered twice")
	}
	m.Looked("metal-a", time.Second, nil)
	m.Answered("refused", time.Millisecond)
	m.Wrote("metal-a", "FleetNode")
	m.Drained(errors.New("a budget"))
	m.Drained(nil)
	m.Site("metal-a", map[string]bool{"Valid": true, "Published": false}, 7)
	m.Site("metal-b", map[string]bool{"Valid": false}, 3)
	m.Site("metal-b", nil, 0)
	want := `
# HELP caisson_kube_drains_total Nodes that were drained, or could not be.
# TYPE caisson_kube_drains_total counter
caisson_kube_drains_total{result="failed"} 1
caisson_kube_drains_total{result="ok"} 1
# HELP caisson_kube_published_generation Generation of the fleet that is published.
# TYPE caisson_kube_published_generation gauge
caisson_kube_published_generation{namespace="metal-a"} 7
# HELP caisson_kube_site_condition Conditions of the Site of a namespace: 1 where one is True.
# TYPE caisson_kube_site_condition gauge
caisson_kube_site_condition{condition="Published",namespace="metal-a"} 0
caisson_kube_site_condition{condition="Valid",namespace="metal-a"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "caisson_kube_drains_total", "caisson_kube_published_generation", "caisson_kube_site_condition"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r); err != nil || n != 8 {
		t.Errorf("%d series: %v", n, err)
	}
}
