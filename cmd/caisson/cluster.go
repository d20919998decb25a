// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// fromCluster says that a site is read from objects of Kubernetes. kubectl(1) asks for them:
// it has the operator's clusters, and logs in to them.
type fromCluster struct {
	on                 bool
	context, namespace string
	kubectl            string
	plan               string
}

// flags gives a verb the flags, and lets it do without files where the cluster has the site. So many
// words stand behind the files.
func (f *fromCluster) flags(c *cobra.Command, behind int) {
	takes, flags := c.Args, c.Flags()
	c.Args = func(c *cobra.Command, args []string) error {
		if f.on && len(args) == behind {
			return nil
		}
		return takes(c, args)
	}
	flags.BoolVar(&f.on, "from-cluster", false, "read the site from the objects of a namespace")
	flags.StringVar(&f.context, "context", "", "the `NAME` of the cluster in kubectl's configuration")
	flags.StringVar(&f.namespace, "namespace", "", "the `NAME` of the namespace with the objects")
	flags.StringVar(&f.kubectl, "kubectl", "kubectl", "the `PROGRAM` that reads the cluster")
}

// besideName is the file beside which keys, locks and memory are.
func besideName(names []string) string {
	if len(names) == 0 {
		return "site"
	}
	return names[0]
}

// parse reads a site from files, or from objects.
func (f *fromCluster) parse(ctx context.Context, at time.Time, names []string) (*site.Site, *report.Report, error) {
	if !f.on {
		if f.context != "" || f.namespace != "" {
			return nil, nil, cli.Usage("--from-cluster reads a site from there", "--context and --namespace are for --from-cluster")
		}
		s, found := parseSite(at, names...)
		return s, found, nil
	}
	if f.plan != "" { // before anything is asked
		if _, err := publish.ActDigest(f.plan); err != nil {
			return nil, nil, fmt.Errorf("--plan: %w", err)
		}
	}
	objects, err := f.objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	var failed error
	dir := filepath.Dir(besideName(names))
	reader := cluster.Reader{Files: hostFiles{}, Keys: cluster.KeysBeside(hostFiles{}, dir),
		Nodes: func() (nodes []cluster.Member, err error) {
			nodes, failed = f.nodes(ctx)
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

// load is parse for a verb that needs a good site.
func (f *fromCluster) load(ctx context.Context, a *app, names []string) (*site.Site, error) {
	s, found, err := f.parse(ctx, time.Now(), names)
	if err != nil {
		return nil, err
	}
	return a.good(s, found)
}

// loadNamed is load for a verb that is about something else than the site.
func (f *fromCluster) loadNamed(ctx context.Context, a *app, names []string) (*site.Site, error) {
	quiet := *a
	quiet.quiet = !a.detail
	return f.load(ctx, &quiet, names)
}

// asked is how long an API server may take.
const asked = 2 * time.Minute

// objects asks kubectl for those of a site.
func (f *fromCluster) objects(ctx context.Context) ([]cluster.Object, error) {
	var kinds []string
	for _, k := range cluster.Kinds() {
		if k.Doc {
			kinds = append(kinds, k.Plural+"."+cluster.Group)
		}
	}
	out, err := f.get(ctx, "objects", "the definitions are in the cluster after 'caisson schema --crd | kubectl apply "+
		"--server-side -f -'", strings.Join(kinds, ","))
	if err != nil {
		return nil, err
	}
	return cluster.List(out)
}

// nodes asks kubectl for the Nodes of the cluster.
func (f *fromCluster) nodes(ctx context.Context) ([]cluster.Member, error) {
	out, err := f.get(ctx, "Nodes", "the site's inventory names the cluster's Nodes: whoever publishes lists them", "nodes")
	if err != nil {
		return nil, err
	}
	return cluster.Members(out)
}

// secret asks kubectl for an entry of a Secret in the namespace of the objects.
func (f *fromCluster) secret(ctx context.Context, ref site.SecretRef) ([]byte, error) {
	out, err := f.get(ctx, ref.String(), "whoever publishes has to be allowed to get that Secret", "secret", ref.Name)
	if err != nil {
		return nil, err
	}
	return cluster.SecretValue(out, ref.Key)
}

// get has kubectl get something as JSON; what is its name in an error, and the hint is for
// when the API server refuses.
func (f *fromCluster) get(ctx context.Context, what, hint string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	args = append(append([]string{"get"}, args...), "-o", "json")
	if f.context != "" {
		args = append(args, "--context", f.context)
	}
	if f.namespace != "" {
		args = append(args, "--namespace", f.namespace)
	}
	out, err := exec.CommandContext(ctx, f.kubectl, args...).Output()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		return nil, cli.WithHint(fmt.Errorf("read %s with %s: %s", what, f.kubectl, strings.TrimSpace(string(failed.Stderr))), hint)
	case err != nil:
		return nil, cli.WithHint(fmt.Errorf("read %s: %w", what, err), "kubectl reads them: --kubectl says where it is")
	}
	return out, nil
}

// agree shows what would be published from a cluster and asks whether it may be, unless its
// digest was given. It returns in the place of what; nil where nobody has to agree.
func (f *fromCluster) agree(ctx context.Context, a *app, w preview.Preview, nodes []publish.Node) (*spec.Floor, error) {
	if !f.on {
		return nil, nil
	}
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, err
	}
	from := fleet.Floor()
	digest, err := w.Digest(fleet, from, nodes)
	if err != nil {
		return nil, err
	}
	if f.plan != "" && f.plan != digest {
		return nil, cli.WithHint(fmt.Errorf("what would be published has the digest %s now, not %s", digest, f.plan),
			"the objects, the layer, the registry or what is published have changed, or a day has begun: look again with "+
				"'caisson plan --from-cluster'")
	}
	if f.plan != "" {
		return &from, nil
	}
	p, err := w.Plan(ctx, nil)
	if err != nil {
		return nil, err
	}
	p.Write(a.err)
	a.say("the plan is %s", digest)
	if w.Publisher.Dry {
		return &from, nil
	}
	if !a.asks() {
		return nil, cli.Usage("--plan "+digest+" publishes it",
			"publishing from a cluster needs a confirmation, and there is no terminal to ask on")
	}
	if !a.agrees("Publish this?") {
		return nil, errors.New("nothing was published")
	}
	return &from, nil
}

// checkForCluster says what of files could not stand in objects.
func checkForCluster(names []string, found *report.Report) {
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // said by the reader of the site
		}
		cluster.Check(&report.Source{Name: name, Data: data}, found)
	}
}
