package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	celapi "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type expressionCase struct {
	Expr       string  `json:"expr"`
	ExprBase64 *string `json:"expr_base64"`
	Device     struct {
		Driver                   string                                                    `json:"driver"`
		AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
		Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
		Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	} `json:"device"`
	Features struct {
		ConsumableCapacity bool `json:"consumableCapacity"`
		ListTypeAttributes bool `json:"listTypeAttributes"`
	} `json:"features"`
	Env       string  `json:"env"`
	CostLimit *uint64 `json:"cost_limit"`
}

type expressionAnswer struct {
	CompileError          string  `json:"compile_error,omitempty"`
	CompileErrorType      string  `json:"compile_error_type,omitempty"`
	OutputType            string  `json:"output_type,omitempty"`
	MaxCost               *uint64 `json:"max_cost,omitempty"`
	EstimateExceedsLimit  bool    `json:"estimate_exceeds_limit,omitempty"`
	Result                *bool   `json:"result,omitempty"`
	RuntimeError          string  `json:"runtime_error,omitempty"`
	CostExceededAtRuntime bool    `json:"cost_exceeded_at_runtime,omitempty"`
	Cost                  *uint64 `json:"cost,omitempty"`
	CostVaries            bool    `json:"cost_varies,omitempty"`
	ResultVaries          bool    `json:"result_varies,omitempty"`
}

// repetitions find out what depends on the order of a map, while they are cheap.
const (
	repetitions          = 12
	costliestRepetitions = 20_000
)

// compiler is what GetCompiler answers; it keeps only one of them itself, and making one takes long.
type compiler interface {
	CompileCELExpression(expression string, options dracel.Options) dracel.CompilationResult
}

var compilers = map[dracel.Features]compiler{}

func compilerFor(features dracel.Features) compiler {
	if compilers[features] == nil {
		compilers[features] = dracel.GetCompiler(features)
	}
	return compilers[features]
}

func evaluate(ctx context.Context, line []byte) (any, error) {
	var given expressionCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	expression := given.Expr
	if given.ExprBase64 != nil {
		decoded, err := base64.StdEncoding.DecodeString(*given.ExprBase64)
		if err != nil {
			return nil, err
		}
		expression = string(decoded)
	}
	kind := environment.StoredExpressions
	if given.Env == "new" {
		kind = environment.NewExpressions
	}
	features := dracel.Features{
		EnableConsumableCapacity: given.Features.ConsumableCapacity,
		EnableListTypeAttributes: given.Features.ListTypeAttributes,
	}
	options := dracel.Options{EnvType: &kind, CostLimit: given.CostLimit}
	compiled := compilerFor(features).CompileCELExpression(expression, options)
	if compiled.Error != nil {
		return expressionAnswer{
			CompileError:     compiled.Error.Detail,
			CompileErrorType: kindOf(compiled.Error),
		}, nil
	}
	return given.run(ctx, compiled), nil
}

func kindOf(err *celapi.Error) string {
	return string(err.Type)
}

func (given *expressionCase) run(ctx context.Context, compiled dracel.CompilationResult) expressionAnswer {
	limit := uint64(resourceapi.CELSelectorExpressionMaxCost)
	if given.CostLimit != nil {
		limit = *given.CostLimit
	}
	answer := expressionAnswer{
		OutputType:           compiled.OutputType.String(),
		MaxCost:              &compiled.MaxCost,
		EstimateExceedsLimit: compiled.MaxCost > limit,
	}
	given.once(ctx, compiled, &answer)
	for range repetitions {
		if answer.Cost == nil || *answer.Cost > costliestRepetitions {
			break
		}
		var again expressionAnswer
		given.once(ctx, compiled, &again)
		if again.Cost == nil || *again.Cost != *answer.Cost {
			answer.CostVaries = true
		}
		if (again.Result == nil) != (answer.Result == nil) || again.Result != nil && *again.Result != *answer.Result {
			answer.ResultVaries = true
		}
	}
	if answer.CostVaries {
		answer.Cost = nil
	}
	return answer
}

func (given *expressionCase) once(ctx context.Context, compiled dracel.CompilationResult, answer *expressionAnswer) {
	result, details, err := compiled.DeviceMatches(ctx, dracel.Device{
		Driver:                   given.Device.Driver,
		AllowMultipleAllocations: given.Device.AllowMultipleAllocations,
		Attributes:               given.Device.Attributes,
		Capacity:                 given.Device.Capacity,
	})
	if details != nil {
		answer.Cost = details.ActualCost()
	}
	if err != nil {
		answer.RuntimeError = err.Error()
		answer.CostExceededAtRuntime = strings.Contains(err.Error(), "actual cost limit exceeded")
		return
	}
	answer.Result = &result
}
