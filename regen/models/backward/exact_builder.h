// The working state of exact_graph. Not for use elsewhere.
#pragma once

#include <string>
#include <vector>

#include "regen/graph/builder.h"
#include "regen/models/backward/backward_exact.h"
#include "regen/models/layers/layers.h"

namespace regen {

class ExactBuilder {
 public:
  // `net` is lowered and must outlive the builder.
  ExactBuilder(const LayerGraph& net, const ExactOptions& options);

  Result<Graph> build() &&;

 private:
  // What an op is before all readers of its inputs are known.
  struct Draft {
    OpSpec op;
    double cost = 0;
    double traffic = 0;                  // 0: the bytes of all inputs and outputs
    std::vector<TensorId> overwritable;  // inputs an in-place variant could overwrite
  };

  const Layer& layer(LayerId id) const { return net_.layer(id); }
  double work(LayerId id) const;  // of the forward op, for the batch
  double elements(TensorId t) const { return static_cast<double>(bytes_[t.index()]) / 4; }
  Bytes batch_bytes(std::int64_t per_sample) const;
  TensorId storage(LayerId id) const { return storage_[id]; }
  TensorId tensor(std::string name, Bytes bytes, TensorKind kind);
  void draft(Draft draft);
  void emit(const Draft& draft, const std::vector<std::size_t>& readers);

  // Forward.
  void add_fixed_tensors();
  void add_forward(LayerId id);
  TensorId add_saved(LayerId id);
  void add_statistics_update(LayerId id);
  void add_loss();

  // Backward: each takes the gradient of the layer's output.
  void add_loss_gradient();
  void add_backward(LayerId id);
  void weight_backward(LayerId id, TensorId g);
  void norm_backward(LayerId id, TensorId g);
  void activation_backward(LayerId id, TensorId g);
  void attention_backward(LayerId id, TensorId g);
  void multiply_backward(LayerId id, TensorId g);
  void matmul_backward(LayerId id, TensorId g);
  void add_layer_backward(LayerId id, TensorId g);
  void scale_backward(LayerId id, TensorId g);
  // The gradient of input `slot`, from `reads` and g alone; may overwrite g if it fits.
  void data_backward(LayerId id, TensorId g, std::size_t slot, std::vector<TensorId> reads,
                     bool elementwise);
  // The gradients of the layer's trainable parameters as outputs of one op.
  void parameter_backward(LayerId id, TensorId g, std::vector<TensorId> reads, double cost);

  TensorId new_gradient(LayerId id, const std::string& suffix = {});
  void contribute(LayerId id, TensorId g) { gradients_[id].push_back(g); }
  TensorId gather(LayerId id);
  TensorId new_param_gradient(ParamId p);
  void finish_param_gradients(LayerId id);
  TensorId add_sum(const std::string& name, TensorId a, TensorId b, TensorId sum);

  void add_updates();

  const LayerGraph& net_;
  std::int64_t batch_;
  FlopRules rules_;
  Optimizer optimizer_;
  GraphBuilder builder_;
  std::vector<Bytes> bytes_;  // by tensor
  std::vector<bool> fixed_;   // by tensor
  std::vector<Draft> drafts_;

  IdVector<LayerId, bool> needs_gradient_;
  IdVector<LayerId, TensorId> storage_;  // where the layer's output lies; views share
  IdVector<LayerId, TensorId> saved_;    // statistics, mask or indices, if any
  IdVector<LayerId, std::vector<TensorId>> gradients_;  // one from each reader
  IdVector<ParamId, TensorId> params_;
  IdVector<ParamId, std::size_t> uses_;  // layers that hold the parameter
  IdVector<ParamId, std::vector<TensorId>> param_gradients_;
  TensorId targets_;
  TensorId log_probabilities_;
};

}  // namespace regen
