// SPDX-License-Identifier: Apache-2.0

// Package kubectl asks kubectl(1) for what a site in a cluster is made of: objects, Nodes and entries
// of Secrets. That program has the operator's clusters, and logs in to them.
//
// It reads and changes nothing, and it is not package cluster, which knows what the objects mean. Only
// cmd/caisson imports it; caisson-kube asks the API server itself.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Cluster is where the objects of a site are.
type Cluster struct {
	Program            string
	Context, Namespace string // as kubectl's configuration has them when empty
}

// patience is how long an API server may take.
const patience = 2 * time.Minute

// Parse reads the site in a namespace as it is on the day of a time. Files of these names, which may be
// none, are beside the directory dir of the site.
func (c *Cluster) Parse(ctx context.Context, at time.Time, files fs.FS, dir string, names []string) (*site.Site, *report.Report, error) {
	objects, err := c.objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	var failed error
	reader := cluster.Reader{Files: files, Keys: cluster.KeysBeside(files, dir), Nodes: func() (nodes []cluster.Member, err error) {
		nodes, failed = c.nodes(ctx)
		return nodes, failed
	}}
	s, problems := reader.Parse(cluster.Day(at), dir, names, objects)
	if failed != nil {
		return nil, nil, failed
	}
	found := &report.Report{}
	for _, p := range problems {
		found.Add(p.Problem)
	}
	return s, found, nil
}

func (c *Cluster) objects(ctx context.Context) ([]cluster.Object, error) {
	kinds := plain.Pick(cluster.Kinds(), func(k cluster.Kind) (string, bool) { return k.Plural + "." + cluster.Group, k.Doc })
	out, err := c.get(ctx, "objects", "the definitions are in the cluster after 'caisson schema --crd | kubectl apply "+
		"--server-side -f -'", strings.Join(kinds, ","))
	if err != nil {
		return nil, err
	}
	return cluster.List(out)
}

func (c *Cluster) nodes(ctx context.Context) ([]cluster.Member, error) {
	out, err := c.get(ctx, "Nodes", "the site's inventory names the cluster's Nodes: whoever publishes lists them", "nodes")
	if err != nil {
		return nil, err
	}
	return cluster.Members(out)
}

// Secret returns an entry of a Secret in the namespace of the objects.
func (c *Cluster) Secret(ctx context.Context, ref site.SecretRef) ([]byte, error) {
	out, err := c.get(ctx, ref.String(), "whoever publishes has to be allowed to get that Secret", "secret", ref.Name)
	if err != nil {
		return nil, err
	}
	return cluster.SecretValue(out, ref.Key)
}

// klog is a line in which kubectl's library complains, once a try: what kubectl says itself is the error.
var klog = regexp.MustCompile(`(?m)^[EWI]\d{4} .*\n`)

// get has kubectl get something as JSON; what is its name in an error, and the hint is for
// when the API server refuses.
func (c *Cluster) get(ctx context.Context, what, hint string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args = append(append([]string{"get"}, args...), "-o", "json")
	if c.Context != "" {
		args = append(args, "--context", c.Context)
	}
	if c.Namespace != "" {
		args = append(args, "--namespace", c.Namespace)
	}
	out, err := exec.CommandContext(ctx, c.Program, args...).Output()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		said := strings.TrimSpace(klog.ReplaceAllString(string(failed.Stderr), ""))
		if !strings.Contains(said, "from server") && !strings.Contains(said, "server doesn't have") {
			hint = "--context and --namespace say which cluster is asked"
		}
		return nil, cli.WithHint(fmt.Errorf("read %s with %s: %s", what, c.Program, said), hint)
	case err != nil:
		return nil, cli.WithHint(fmt.Errorf("read %s: %w", what, err), "kubectl reads them: --kubectl says where it is")
	}
	return out, nil
}
